// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
)

// TestAddPaced checks that AddPaced syncs the first change at once, syncs the changes after it in
// fewer syncs than Add, and misses no change.
func TestAddPaced(t *testing.T) {
	// The sync takes a duration that is no multiple of the interval of the changes (1 ms). So no
	// sync starts or ends at the instant of a change, where the order would be random.
	const changes, took = 1000, 20*time.Millisecond + 137*time.Microsecond
	for name, paced := range map[string]bool{"paced": true, "not paced": false} {
		synctest.Test(t, func(t *testing.T) {
			c, began := clock.Real(), time.Now()
			seen, syncs := 0, 0
			// The variable is atomic only for the race detector, which does not see that the fake
			// clock already orders the accesses.
			var made atomic.Int32
			var first time.Duration
			q := NewQueue("test", c, slog.New(slog.DiscardHandler), 1, func(context.Context, string) error {
				if syncs++; syncs == 1 {
					first = time.Since(began)
				}
				seen = int(made.Load())
				<-c.After(took)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { _ = q.Run(ctx); close(done) }()
			for range changes {
				made.Add(1)
				if paced {
					q.AddPaced("k")
				} else {
					q.Add("k")
				}
				<-c.After(time.Millisecond)
			}
			<-c.After(time.Second)
			cancel()
			<-done
			if first != 0 || seen != changes {
				t.Errorf("%s: the first sync after %v; %d of %d changes seen", name, first, seen, changes)
			}
			if few := syncs <= changes/int(took/time.Millisecond)/pauseFactor+2; few != paced {
				t.Errorf("%s: %d syncs", name, syncs)
			}
		})
	}
}

// TestConflictsDoNotDelayRetries checks that many Conflict errors in a row, which a lagging cache
// causes, do not lengthen the back-off after a different error that follows them.
func TestConflictsDoNotDelayRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conflicts = 30
		var calls atomic.Int32
		q := NewQueue("test", clock.Real(), slog.New(slog.DiscardHandler), 1, func(context.Context, string) error {
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
		go func() { done <- q.Run(ctx) }()
		for calls.Load() < conflicts {
			q.Add("default/a") // this sync returns a Conflict error
			synctest.Wait()
		}
		<-q.clock.After(conflictMax)
		synctest.Wait()
		if got := calls.Load(); got < conflicts+1 {
			t.Errorf("not retried within %v of the last conflict", conflictMax)
		}
		<-q.clock.After(time.Second)
		synctest.Wait()
		if got := calls.Load(); got < conflicts+2 {
			t.Error("not retried within 1 s of the first failure")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestNotYet checks that a sync that only waits for another program is retried without a warning.
func TestNotYet(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	q := NewQueue("test", clock.Real(), log, 1, func(context.Context, string) error {
		if calls++; calls < 3 {
			return fmt.Errorf("the node: %w", ErrNotYet)
		}
		cancel()
		return nil
	})
	q.Add("default/a")
	if err := q.Run(ctx); err != nil {
		t.Error(err)
	}
	if calls != 3 || logged.Len() > 0 {
		t.Errorf("%d calls, want 3; logged %q", calls, &logged)
	}
}
