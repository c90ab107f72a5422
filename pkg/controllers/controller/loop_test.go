// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
)

// A change is synced at once when nothing was synced lately; those that follow
// are synced together, and none of them is forgotten.
func TestAddPaced(t *testing.T) {
	// No sync begins or ends at the instant of a change: which of them comes first would be left to chance.
	const changes, took = 1000, 20*time.Millisecond + 137*time.Microsecond
	for name, paced := range map[string]bool{"paced": true, "not paced": false} {
		synctest.Test(t, func(t *testing.T) {
			c, began := clock.Real(), time.Now()
			seen, syncs := 0, 0
			var made atomic.Int32 // virtual time orders the accesses, which the race detector cannot see
			var first time.Duration
			l := NewLoop("test", c, slog.New(slog.DiscardHandler), 1, func(context.Context, string) error {
				if syncs++; syncs == 1 {
					first = time.Since(began)
				}
				seen = int(made.Load())
				<-c.After(took)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { _ = l.Run(ctx); close(done) }()
			for range changes {
				made.Add(1)
				if paced {
					l.AddPaced("k")
				} else {
					l.Add("k")
				}
				<-c.After(time.Millisecond)
			}
			<-c.After(time.Second)
			cancel()
			<-done
			if first != 0 || seen != changes {
				t.Errorf("%s: the first sync after %v; %d of %d changes seen", name, first, seen, changes)
			}
			if few := syncs <= changes/int(took/time.Millisecond)/share+2; few != paced {
				t.Errorf("%s: %d syncs", name, syncs)
			}
		})
	}
}

// Conflicts are what caches that are behind bring about, many at a time: they do not
// make a key wait for long that then fails for another reason, of which no change tells.
func TestConflictsAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conflicts = 30
		var calls atomic.Int32
		l := NewLoop("test", clock.Real(), slog.New(slog.DiscardHandler), 1, func(context.Context, string) error {
			switch n := calls.Add(1); {
			case n <= conflicts:
				return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", nil)
			case n == conflicts+1:
				return apierrors.NewTimeoutError("lost", 0)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		for calls.Load() < conflicts {
			l.Add("default/a") // somebody else's change, each time
			synctest.Wait()
		}
		<-l.clock.After(conflictMax)
		synctest.Wait()
		if got := calls.Load(); got < conflicts+1 {
			t.Errorf("%v after the last conflict it has not been tried again", conflictMax)
		}
		<-l.clock.After(time.Second)
		synctest.Wait()
		if got := calls.Load(); got < conflicts+2 {
			t.Error("a second after its first failure it has not been tried again")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
