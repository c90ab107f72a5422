// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"keelson.dev/api/clock"
)

const (
	// barrierTimeout is how long a read waits for a revision before it fails.
	barrierTimeout = 3 * time.Second
	// progressPeriod is how often the backend requests the progress of the watch while reads wait.
	progressPeriod = 100 * time.Millisecond
)

// revisionBarrier makes reads wait until all caches have applied a revision.
//
// Invariant: rev never decreases, and every event up to rev has been applied by every cache that is
// ready.
type revisionBarrier struct {
	clock clock.Clock
	rev   atomic.Int64

	mu      sync.Mutex
	waiting map[*barrierWaiter]struct{}
	behind  chan struct{} // receives when a read begins to wait
}

type barrierWaiter struct {
	rev  int64
	done chan struct{}
}

func newRevisionBarrier(clock clock.Clock) *revisionBarrier {
	return &revisionBarrier{clock: clock, waiting: map[*barrierWaiter]struct{}{}, behind: make(chan struct{}, 1)}
}

// reached returns the revision up to which every event of the key-value store has been applied to
// the caches.
func (b *revisionBarrier) reached() int64 { return b.rev.Load() }

// advance records that every event up to rev has been applied, and wakes the reads that wait for
// it.
func (b *revisionBarrier) advance(rev int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rev <= b.rev.Load() {
		return
	}
	b.rev.Store(rev)
	for w := range b.waiting {
		if w.rev <= rev {
			close(w.done)
			delete(b.waiting, w)
		}
	}
}

// wait blocks until the caches have applied every event up to revision rev. It returns a "too large
// resource version" error after barrierTimeout.
func (b *revisionBarrier) wait(ctx context.Context, rev int64) error {
	if b.rev.Load() >= rev {
		return nil
	}
	b.mu.Lock()
	if b.rev.Load() >= rev {
		b.mu.Unlock()
		return nil
	}
	w := &barrierWaiter{rev: rev, done: make(chan struct{})}
	b.waiting[w] = struct{}{}
	b.mu.Unlock()
	defer b.forget(w)
	select {
	case b.behind <- struct{}{}:
	default:
	}
	timer := b.clock.NewTimer(barrierTimeout)
	defer timer.Stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return tooLarge(rev, b.rev.Load())
	}
}

// waitUntil blocks until the caches have applied every event up to revision rev, however long that
// takes. It returns false if ctx ends first.
func (b *revisionBarrier) waitUntil(ctx context.Context, rev int64) bool {
	for b.wait(ctx, rev) != nil {
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

func (b *revisionBarrier) forget(w *barrierWaiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, w)
}

func (b *revisionBarrier) anyWaiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

// runProgress requests the progress of the watch while reads wait. Without it, a read could wait
// until its timeout: if the last write was to a key outside of the watch, no event shows that the
// watch has reached the revision of that write.
func (b *Backend) runProgress(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.barrier.behind:
		}
		for b.barrier.anyWaiting() {
			b.mu.RLock()
			w := b.watch
			b.mu.RUnlock()
			if w != nil {
				if err := w.RequestProgress(ctx); err != nil && ctx.Err() == nil {
					b.log.Debug("Failed to ask the key-value store for the progress of its watch", "err", err)
				}
			}
			if !sleep(ctx, b.clock, progressPeriod) {
				return
			}
		}
	}
}
