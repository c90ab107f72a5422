// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

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
			made, seen, syncs := 0, 0, 0
			var first time.Duration
			l := NewLoop("test", c, slog.New(slog.DiscardHandler), 1, func(context.Context, string) error {
				if syncs++; syncs == 1 {
					first = time.Since(began)
				}
				seen = made
				<-c.After(took)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { _ = l.Run(ctx); close(done) }()
			for range changes {
				made++
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
			if first != 0 || seen != made {
				t.Errorf("%s: the first sync after %v; %d of %d changes seen", name, first, seen, made)
			}
			if few := syncs <= changes/int(took/time.Millisecond)/share+2; few != paced {
				t.Errorf("%s: %d syncs", name, syncs)
			}
		})
	}
}
