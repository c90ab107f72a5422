// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"keelson.dev/api/clock"
)

// TestTurns checks that only half as many lists of one user run at once as there are processors,
// that a list of another user does not wait for them, and that nothing remains in memory.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(4, clock.Real())
		var mu sync.Mutex
		running, most, done := 0, 0, 0
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				end, err := turns.take(t.Context(), "noisy")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				running, done = running+1, done+1
				most = max(most, running)
				mu.Unlock()
				<-time.After(10 * time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
				end()
			})
		}
		synctest.Wait()
		begin := time.Now()
		end, err := turns.take(t.Context(), "quiet")
		if err != nil || time.Since(begin) != 0 {
			t.Errorf("another user waited for %s: %v", time.Since(begin), err)
		}
		end()
		wg.Wait()
		if most != 2 || done != 100 || len(turns.lines) != 0 {
			t.Errorf("%d at once, %d done, %d lines", most, done, len(turns.lines))
		}
	})
}

// TestTurnsOfSlowReaders checks that a list with a slow reader delays the next one by at most two
// seconds, and that a canceled list is removed from the line of lists that wait for their turn.
func TestTurnsOfSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1, clock.Real())
		slow, err := turns.take(t.Context(), "u")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := turns.take(ctx, "u"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		begin := time.Now()
		next, err := turns.take(t.Context(), "u")
		if err != nil || time.Since(begin) > 2*slowReader {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		next()
		slow()
		if len(turns.lines) != 0 {
			t.Error("a line is left")
		}
	})
}
