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
	// freshTimeout is how long a read waits for a revision to arrive.
	freshTimeout = 3 * time.Second
	// progressPeriod is how often progress is asked for while reads wait.
	progressPeriod = 100 * time.Millisecond
)

// freshness knows up to which revision all caches have been brought, and wakes
// those who wait for one.
type freshness struct {
	clock clock.Clock
	rev   atomic.Int64

	mu      sync.Mutex
	waiting map[*freshWaiter]struct{}
	behind  chan struct{} // somebody began to wait
}

type freshWaiter struct {
	rev  int64
	done chan struct{}
}

func newFreshness(clock clock.Clock) *freshness {
	return &freshness{clock: clock, waiting: map[*freshWaiter]struct{}{}, behind: make(chan struct{}, 1)}
}

// reached is the revision up to which every event has been applied.
func (f *freshness) reached() int64 { return f.rev.Load() }

// advance notes that every event up to rev has been applied.
func (f *freshness) advance(rev int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if rev <= f.rev.Load() {
		return
	}
	f.rev.Store(rev)
	for w := range f.waiting {
		if w.rev <= rev {
			close(w.done)
			delete(f.waiting, w)
		}
	}
}

// wait blocks until rev has been reached. It returns errTooLarge when that
// takes too long.
func (f *freshness) wait(ctx context.Context, rev int64) error {
	if f.rev.Load() >= rev {
		return nil
	}
	f.mu.Lock()
	if f.rev.Load() >= rev {
		f.mu.Unlock()
		return nil
	}
	w := &freshWaiter{rev: rev, done: make(chan struct{})}
	f.waiting[w] = struct{}{}
	f.mu.Unlock()
	defer f.forget(w)
	select {
	case f.behind <- struct{}{}:
	default:
	}
	timer := f.clock.NewTimer(freshTimeout)
	defer timer.Stop()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return tooLarge(rev, f.rev.Load())
	}
}

func (f *freshness) forget(w *freshWaiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, w)
}

func (f *freshness) anyWaiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting) > 0
}

// runProgress asks the watch how far it has come while reads wait for it: the
// last write may have been to a key that is not ours.
func (b *Backend) runProgress(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.fresh.behind:
		}
		for b.fresh.anyWaiting() {
			b.mu.RLock()
			w := b.watch
			b.mu.RUnlock()
			if w != nil {
				if err := w.RequestProgress(ctx); err != nil && ctx.Err() == nil {
					b.log.Debug("Progress request failed", "err", err)
				}
			}
			if !sleep(ctx, b.clock, progressPeriod) {
				return
			}
		}
	}
}

// revisionReader reads the store's present revision. Calls that come while a
// read is under way share the one after it: that one begins after they do, so
// what it finds is recent enough for each of them.
type revisionReader struct {
	read func(ctx context.Context) (int64, error)

	mu   sync.Mutex
	busy bool
	next *revisionCall
}

type revisionCall struct {
	waiting int           // callers that have not gone away; guarded by revisionReader.mu
	turn    chan struct{} // receives once: one of the callers is to read
	done    chan struct{} // closed when rev and err are set
	rev     int64
	err     error
}

// current returns a revision that is at least that of every write acknowledged
// anywhere before the call.
func (r *revisionReader) current(ctx context.Context) (int64, error) {
	r.mu.Lock()
	if !r.busy {
		r.busy = true
		r.mu.Unlock()
		defer r.pass()
		return r.read(ctx)
	}
	if r.next == nil {
		r.next = &revisionCall{turn: make(chan struct{}, 1), done: make(chan struct{})}
	}
	call := r.next
	call.waiting++
	r.mu.Unlock()
	select {
	case <-ctx.Done():
		r.leave(call)
		return 0, ctx.Err()
	case <-call.done:
		if call.err != nil && ctx.Err() == nil {
			return r.read(ctx) // the reader's context may have ended, not ours
		}
		return call.rev, call.err
	case <-call.turn:
		defer r.pass()
		call.rev, call.err = r.read(ctx)
		close(call.done)
		return call.rev, call.err
	}
}

// pass hands the right to read to the callers that wait for it.
func (r *revisionReader) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passLocked()
}

func (r *revisionReader) passLocked() {
	if r.next == nil {
		r.busy = false
		return
	}
	r.next.turn <- struct{}{}
	r.next = nil
}

// leave takes a caller back that waits no longer. The last one to go gives up
// the right to read if it has been handed to them.
func (r *revisionReader) leave(call *revisionCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call.waiting--
	if call.waiting > 0 {
		return
	}
	if r.next == call {
		r.next = nil
		return
	}
	select {
	case <-call.turn:
		r.passLocked()
	default:
	}
}
