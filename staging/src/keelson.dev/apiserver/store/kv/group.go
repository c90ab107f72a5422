// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"context"
	"slices"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

// groupPatience bounds how long a write waits for the other callers of its group. Such a caller may
// be busy with other work, or may itself wait for a caller whose write waits in the group.
const groupPatience = 5 * time.Millisecond

// Group combines the writes of concurrent callers, each of which makes one write at a time. Once
// every caller waits for a write, the store makes all of them in one transaction. Each write has
// its own expectation and its own result, as if it were made alone, but all writes that succeed
// have the same revision.
//
// Group is a hint in the context of a write. Stores that gain nothing by it ignore it. It is safe
// for concurrent use.
type Group struct {
	clock clock.Clock

	mu      sync.Mutex
	callers int      // number of callers that may still write
	waiting []*Write // writes that wait for the other callers, at most one for each caller
	commit  func([]*Write)
}

// Write is one write (a Put or a Delete) of a Group, which combines concurrent writes in one
// transaction.
type Write struct {
	Key         string
	Value       []byte
	Expect, TTL int64 // see Store.Put
	Conditions  []Unchanged
	Delete      bool

	// Result and Err are the results that the Put or Delete would return.
	Result WriteResult
	Err    error

	done chan struct{}
}

type groupKey struct{}

// NewGroup returns a group for the given number of callers, and the context for their writes. Each
// caller calls Leave after its last write.
func NewGroup(ctx context.Context, clock clock.Clock, callers int) (*Group, context.Context) {
	g := &Group{clock: clock, callers: callers}
	return g, context.WithValue(ctx, groupKey{}, g)
}

// GroupOf returns the group of ctx, whose concurrent writes are combined in one transaction. It
// returns nil if ctx has no group.
func GroupOf(ctx context.Context) *Group {
	g, _ := ctx.Value(groupKey{}).(*Group)
	return g
}

// Leave removes from the group a caller that makes no more writes.
func (g *Group) Leave() {
	g.mu.Lock()
	g.callers--
	ready, commit := g.takeLocked(false), g.commit
	g.mu.Unlock()
	finish(ready, commit)
}

// Make blocks until w has been made, and has its Result and Err. One caller calls the function
// commit with the waiting writes; this function must set the results of all of them.
func (g *Group) Make(w *Write, commit func([]*Write)) {
	w.done = make(chan struct{})
	g.mu.Lock()
	g.waiting, g.commit = append(g.waiting, w), commit
	first, ready := len(g.waiting) == 1, g.takeLocked(false)
	g.mu.Unlock()
	finish(ready, commit)
	if first {
		g.hurry(w, commit)
	}
	<-w.done
}

// hurry commits the waiting writes if w, the first of them, has waited for groupPatience.
func (g *Group) hurry(w *Write, commit func([]*Write)) {
	t := g.clock.NewTimer(groupPatience)
	defer t.Stop()
	select {
	case <-w.done:
		return
	case <-t.C():
	}
	g.mu.Lock()
	var late []*Write
	if slices.Contains(g.waiting, w) {
		late = g.takeLocked(true)
	}
	g.mu.Unlock()
	finish(late, commit)
}

// takeLocked returns the waiting writes if now is set or all callers wait; otherwise nil.
func (g *Group) takeLocked(now bool) []*Write {
	if !now && len(g.waiting) < g.callers {
		return nil
	}
	ready := g.waiting
	g.waiting = nil
	return ready
}

// finish commits the writes in ready and wakes the callers that wait for them.
func finish(ready []*Write, commit func([]*Write)) {
	if len(ready) == 0 {
		return
	}
	commit(ready)
	for _, w := range ready {
		close(w.done)
	}
}
