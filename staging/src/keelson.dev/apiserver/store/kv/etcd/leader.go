// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

const (
	// patience is how long a request waits for its answer before the store looks whether etcd's leader has
	// changed. It is about the time of an election.
	patience = time.Second
	// lookInterval is the time between two further looks.
	lookInterval = time.Second
	// grace is how long the new leader may take for a request that reached it. While etcd has no leader, a member
	// holds the requests back, and sends them when it has one.
	grace = 250 * time.Millisecond
)

// errLost says that a request has no answer, although etcd has another leader since it was sent. Usually
// the request is lost, but it may also have been done, or be done later.
var errLost = errors.New("etcd's leader has changed, and the request was not answered")

// leader notices that requests were lost because etcd's leader has changed. A member sends a write to the
// leader, and does not repeat it if the leader is gone. It waits until its own limit of 7 s ends.
//
// The methods do nothing on nil, which is for an etcd of one member. A leader is safe for concurrent use.
type leader struct {
	client *clientv3.Client
	clock  clock.Clock
	// term is the latest raft term that a response has shown, and revision the latest revision. 0 is unknown.
	term     atomic.Uint64
	revision atomic.Int64
}

// note takes over what the header of a response shows.
func (l *leader) note(h *pb.ResponseHeader) {
	if l == nil || h == nil {
		return
	}
	if t := l.term.Load(); h.RaftTerm > t {
		l.term.CompareAndSwap(t, h.RaftTerm) // losing to another response only makes the term older
	}
	if r := l.revision.Load(); h.Revision > r {
		l.revision.CompareAndSwap(r, h.Revision)
	}
}

// follow returns the context for one request. It ends with the cause errLost if the request is lost. The
// caller must call stop at the end of the request.
func (l *leader) follow(ctx context.Context) (of context.Context, stop func()) {
	if l == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	term := l.term.Load()
	timer := l.clock.AfterFunc(patience, func() {
		if l.changes(ctx, term) {
			cancel(errLost)
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// changes waits until etcd has a leader of a later term and grace has passed, and returns true, or false if ctx ends
// first.
//
// A member answers the linearizable read after it has caught up with the new leader. If the old leader had
// committed the request, and the same member answers it, the answer is due by then.
func (l *leader) changes(ctx context.Context, term uint64) bool {
	for {
		resp, err := l.client.Get(ctx, kv.CompactRevKey, clientv3.WithCountOnly())
		if err == nil {
			l.note(resp.Header)
			if term != 0 && resp.Header.RaftTerm > term {
				return l.wait(ctx, grace)
			}
		}
		if !l.wait(ctx, lookInterval) {
			return false
		}
	}
}

// wait waits for d, and returns false if ctx ends first.
func (l *leader) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.clock.After(d):
		return true
	}
}

// lost returns errLost if ctx, which follow has returned, has ended for that reason. Otherwise it returns err.
func lost(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errLost) {
		return errLost
	}
	return err
}
