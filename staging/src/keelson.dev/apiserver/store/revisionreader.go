// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync"
)

// revisionReader reads the present revision of the key-value store for consistent reads. Callers
// that arrive during a read share the next one, which begins after they have arrived, so its result
// is recent enough for each of them.
//
// Invariant: at most one read is in progress and at most one is waiting, however many callers there
// are.
type revisionReader struct {
	read func(ctx context.Context) (int64, error)

	mu   sync.Mutex
	busy bool
	next *revisionCall // the read that callers wait for; nil if no caller waits
}

type revisionCall struct {
	waiting int           // number of callers; guarded by revisionReader.mu
	turn    chan struct{} // receives once; the caller that receives has to make the read
	done    chan struct{} // closed when rev and err have been set
	rev     int64
	err     error
}

// current returns a revision that is at least that of every write acknowledged by any server before
// the call.
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
			return r.read(ctx) // the read may have failed because the context of the caller that made it ended
		}
		return call.rev, call.err
	case <-call.turn:
		defer r.pass()
		call.rev, call.err = r.read(ctx)
		close(call.done)
		return call.rev, call.err
	}
}

// pass makes one of the waiting callers start the next read of the key-value store's revision.
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

// leave removes a caller that stops waiting. If it was the last one of its call, but the call has
// already been chosen to make the next read, leave chooses the following call.
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
