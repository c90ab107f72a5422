// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"time"
	"weak"
)

// change is one event of a resource, with the state of the object before and after it.
//
// Invariant: once the change is in the window, only the fields kept and last change, so watchers
// and lists of the past read the other fields without a lock.
type change struct {
	rev        int64
	cur        *Record // state after the change; nil if the object was deleted
	prev       *Record // state before the change; nil if the object was created
	at         time.Time
	finalState func([]byte) ([]byte, bool) // see Config.FinalState
	kept       int64                       // memory of prev's bytes as counted by the window; guarded by cache.mu

	mu   sync.Mutex
	last weak.Pointer[Record] // the latest result of gone
}

// key returns the key of the changed object.
func (c *change) key() string {
	if c.cur != nil {
		return c.cur.Key
	}
	return c.prev.Key
}

// size returns the size of both states in bytes.
func (c *change) size() (bytes int) {
	for _, r := range []*Record{c.cur, c.prev} {
		if r != nil {
			bytes += r.size
		}
	}
	return bytes
}

// gone returns the last state of the object, at the revision of the change, for watchers that stop
// selecting the object. Watchers that call it at about the same time share the result. The change
// refers to the result weakly: otherwise it would keep bytes that the window does not count.
func (c *change) gone() *Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last.Value()
	switch {
	case last != nil:
		return last
	case c.cur != nil:
		last = c.prev.at(c.rev) // the object exists, but a selector no longer matches
	default:
		last = c.prev.last(c.rev, c.finalState)
	}
	c.last = weak.Make(last)
	return last
}

// weight returns the memory size of the bytes of the state before the change. The memory of the
// state after it is counted by the tree.
func (c *change) weight() int64 {
	if c.prev == nil {
		return 0
	}
	return c.prev.weight()
}
