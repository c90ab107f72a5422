// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sort"
	"sync"
	"time"
	"weak"
)

// windowLimits bound a window.
type windowLimits struct {
	min   int           // changes that are kept however old they are
	max   int           // changes that are kept at most, however young
	age   time.Duration // of other changes
	bytes int64         // of data that only the window still holds
}

// The numbers and the age are Kubernetes'.
var defaultLimits = windowLimits{min: 100, max: 100 * 1024, age: 75 * time.Second, bytes: 48 << 20}

// change is one event of a resource. Watchers and the overlay of lists of the
// past read it without lock.
type change struct {
	rev  int64
	cur  *Record // nil: deleted
	prev *Record // nil: created
	at   time.Time
	end  func([]byte) ([]byte, bool) // see Config.End
	kept int64                       // what prev's bytes take

	mu   sync.Mutex
	last weak.Pointer[Record] // see gone
}

// key is the key that changed.
func (c *change) key() string {
	if c.cur != nil {
		return c.cur.Key
	}
	return c.prev.Key
}

// size returns the size of both stored states, in bytes.
func (c *change) size() (bytes int) {
	for _, r := range []*Record{c.cur, c.prev} {
		if r != nil {
			bytes += r.size
		}
	}
	return bytes
}

// gone returns the last state as somebody sees it for whom the object ends with
// this change: at the change's revision. All who do at about the same time share it;
// kept, it would hold bytes that the window does not count, and that prev has given
// up when they were packed.
func (c *change) gone() *Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last.Value()
	switch {
	case last != nil:
		return last
	case c.cur != nil:
		last = c.prev.at(c.rev) // it has left a selection
	default:
		last = c.prev.last(c.rev, c.end)
	}
	c.last = weak.Make(last)
	return last
}

// window holds the recent changes of a resource, oldest first. Positions count
// all changes since the cache was loaded; watchers are positions.
type window struct {
	changes []*change // changes[head:] are in the window
	head    int
	first   uint64 // position of changes[head]
	floor   int64  // all changes after this revision are in the window
	bytes   int64  // what the data of the window's previous states takes
	packed  uint64 // position before which previous states have been packed
}

// reset empties the window; rev is that of the state that follows.
func (w *window) reset(rev int64) {
	*w = window{first: w.end(), floor: rev}
}

// end is the position after the last change.
func (w *window) end() uint64 { return w.first + uint64(len(w.changes)-w.head) }

// at returns the change at a position in the window.
func (w *window) at(pos uint64) *change { return w.changes[w.head+int(pos-w.first)] }

// after returns the position of the first change with a revision greater than rev.
func (w *window) after(rev int64) uint64 {
	live := w.changes[w.head:]
	return w.first + uint64(sort.Search(len(live), func(i int) bool { return live[i].rev > rev }))
}

// since returns the changes with a revision greater than rev. The slice is valid until the window
// changes.
func (w *window) since(rev int64) []*change {
	return w.changes[w.head+int(w.after(rev)-w.first):]
}

// resume returns the position of the first change that a watch is to be told of
// which has got as far as rev, and whether it is one of that revision: where
// several objects have changed at once the watch may have been told of some, and
// all are told again.
func (w *window) resume(rev int64) (pos uint64, again bool) {
	first, pos := w.after(rev-1), w.after(rev)
	if pos-first > 1 {
		return first, true
	}
	return pos, false
}

// add appends a change.
func (w *window) add(c *change) {
	w.changes = append(w.changes, c)
	c.kept = c.weight()
	w.bytes += c.kept
}

// weigh counts again what changes take.
func (w *window) weigh(from, end uint64) {
	for pos := max(from, w.first); pos < min(end, w.end()); pos++ {
		c := w.at(pos)
		w.bytes -= c.kept
		c.kept = c.weight()
		w.bytes += c.kept
	}
	w.packed = max(w.packed, min(end, w.end()))
}

// trim drops what is too old or too much. Changes of one revision stay or go
// together.
func (w *window) trim(limits *windowLimits, now time.Time) {
	oldest := now.Add(-limits.age)
	for {
		live := w.changes[w.head:]
		if len(live) <= limits.min || !(live[0].at.Before(oldest) || len(live) > limits.max || w.bytes > limits.bytes) {
			return
		}
		rev := live[0].rev
		for w.head < len(w.changes) && w.changes[w.head].rev == rev {
			w.drop()
		}
		w.floor = rev
	}
}

func (w *window) drop() {
	w.bytes -= w.changes[w.head].kept
	w.changes[w.head] = nil
	w.head++
	w.first++
	if w.head >= 64 && w.head > len(w.changes)/2 {
		n := copy(w.changes, w.changes[w.head:])
		clear(w.changes[n:])
		w.changes, w.head = w.changes[:n], 0
	}
}

func (c *change) weight() int64 {
	if c.prev == nil {
		return 0
	}
	return c.prev.weight()
}
