// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sort"
	"time"
)

// windowLimits bounds a window, which holds the recent changes of a resource.
type windowLimits struct {
	min   int           // minimum number of changes that are kept, whatever their age and size
	max   int           // maximum number of changes that are kept
	age   time.Duration // changes beyond min are kept for this long
	bytes int64         // maximum memory size of previous states, which only the window keeps
}

// defaultLimits has Kubernetes' limits for the number and the age of changes.
var defaultLimits = windowLimits{min: 100, max: 100 * 1024, age: 75 * time.Second, bytes: 48 << 20}

// window holds the recent changes of a resource, oldest first. The position of a change is the
// number of changes that were added before it since the cache was created.
//
// Invariant: the window contains every change with a revision greater than floor. It contains
// either all changes of a revision or none. cache.mu guards it.
type window struct {
	changes []*change // only changes[head:] are in the window
	head    int
	first   uint64 // position of changes[head]
	floor   int64  // the window contains all changes after this revision
	bytes   int64  // memory size of previous states
	packed  uint64 // previous states before this position have been packed already
}

// reset empties the window. rev is the revision of the cache's new state.
func (w *window) reset(rev int64) {
	*w = window{first: w.end(), floor: rev}
}

// end returns the position after the last change.
func (w *window) end() uint64 { return w.first + uint64(len(w.changes)-w.head) }

// at returns the change at the position pos, which is in the window.
func (w *window) at(pos uint64) *change { return w.changes[w.head+int(pos-w.first)] }

// after returns the position of the first change with a revision greater than rev.
func (w *window) after(rev int64) uint64 {
	live := w.changes[w.head:]
	return w.first + uint64(sort.Search(len(live), func(i int) bool { return live[i].rev > rev }))
}

// since returns the changes with a revision greater than rev. The slice is valid until the window
// is modified.
func (w *window) since(rev int64) []*change {
	return w.changes[w.head+int(w.after(rev)-w.first):]
}

// resume returns the position of the first change for a watch that resumes after revision rev. If
// several objects changed at rev, the client may have received only some of these changes: resume
// then returns the first of them and true, and the client receives all of them again.
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

// weigh updates the memory sizes of the changes in a range of positions, after their previous
// states have been packed.
func (w *window) weigh(from, end uint64) {
	for pos := max(from, w.first); pos < min(end, w.end()); pos++ {
		c := w.at(pos)
		w.bytes -= c.kept
		c.kept = c.weight()
		w.bytes += c.kept
	}
	w.packed = max(w.packed, min(end, w.end()))
}

// trim drops the oldest changes while the limits are exceeded.
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

// drop removes the oldest change.
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
