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

// groupPatience is how long a write of a group waits for others at most: a caller
// may be busy with something else, or wait for what one that waits has to do.
const groupPatience = 5 * time.Millisecond

// Group has callers of a store who are at work side by side, and make one write at
// a time each, write together: once each of them waits for a write to be made, the
// store makes all of them in one go. Each has its own expectation and its own
// result, as if it came alone, but those that happen have one revision.
//
// It is a hint that comes with the context. A store that gains nothing by it does
// not look for it.
type Group struct {
	clock clock.Clock

	mu      sync.Mutex
	callers int      // who may come with a write
	waiting []*Write // of different callers
	commit  func([]*Write)
}

// Write is one write of a Group: a Put, or a Delete.
type Write struct {
	Key         string
	Value       []byte
	Expect, TTL int64 // as of Put
	Conditions  []Unchanged
	Delete      bool

	// Result and Err are what the Put or Delete would return.
	Result WriteResult
	Err    error

	done chan struct{}
}

type groupKey struct{}

// NewGroup returns a group of callers, and the context that they use.
func NewGroup(ctx context.Context, clock clock.Clock, callers int) (*Group, context.Context) {
	g := &Group{clock: clock, callers: callers}
	return g, context.WithValue(ctx, groupKey{}, g)
}

// GroupOf returns the group that a caller with ctx belongs to; nil: none.
func GroupOf(ctx context.Context) *Group {
	g, _ := ctx.Value(groupKey{}).(*Group)
	return g
}

// Leave is called by a caller who makes no more writes.
func (g *Group) Leave() {
	g.mu.Lock()
	g.callers--
	ready, commit := g.takeLocked(false), g.commit
	g.mu.Unlock()
	finish(ready, commit)
}

// Make returns when w has been made, which has its outcome then. commit is what the
// store makes writes by, of different callers.
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

// hurry makes the writes that w, the first of them, has waited for long enough.
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

// takeLocked returns the writes that wait, if it is time to make them.
func (g *Group) takeLocked(now bool) []*Write {
	if !now && len(g.waiting) < g.callers {
		return nil
	}
	ready := g.waiting
	g.waiting = nil
	return ready
}

func finish(ready []*Write, commit func([]*Write)) {
	if len(ready) == 0 {
		return
	}
	commit(ready)
	for _, w := range ready {
		close(w.done)
	}
}
