// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// watchBatch bounds how many changes a watcher looks at, and how many initial
	// objects it delivers, at a time.
	watchBatch = 256
	// watchBatchBytes is the size at which a batch of changes ends. If a client does not read, its
	// batch keeps the changes in memory, even those that the window has dropped.
	watchBatchBytes = 1 << 20
	// bookmarkEvery is about how often a quiet watch gets a bookmark, and
	// bookmarkLead how long before its deadline the last one.
	bookmarkEvery = time.Minute
	bookmarkLead  = 2 * time.Second
)

// watcher is a position in the window of a cache.
//
// While it has nothing to read (pending is false) it has no position: changes
// that do not concern it pass by, and it can sleep for ever without falling out
// of the window. A change that may concern it sets its position and wakes it.
type watcher struct {
	s     *Store
	c     *cache // the store's
	match matcher
	after int64 // only changes after this revision are delivered

	initial    *snapshot // present state still to be delivered, from the key from on; nil: none
	from       string
	batch      []Event // room for a piece of it
	initialRev int64   // its revision
	endMark    bool    // a bookmark is to follow the present state

	bookmarks bool
	deadline  time.Time   // zero: none
	due       atomic.Bool // a bookmark is
	sent      int64       // revision of the last event or bookmark delivered

	wake chan struct{}

	// Guarded by c.mu: notify and end hold it for writing, read for reading, and
	// only who uses the watcher reads.
	timer   clock.Timer // of the next bookmark; may be nil
	pending bool
	next    uint64
	ended   bool
	oldest  int64
}

var _ Watcher = (*watcher)(nil)

// notify says that there is something at pos. The cache's lock is held.
func (w *watcher) notify(pos uint64) {
	if w.pending {
		return
	}
	w.pending, w.next = true, pos
	w.signal()
}

// end says that the watcher has missed something. The cache's lock is held.
func (w *watcher) end(oldest int64) {
	w.ended, w.oldest = true, oldest
	w.signal()
}

// signal wakes Next, because there may be something to poll. The cache's lock may be held, or a clock's.
func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Next implements Watcher.
func (w *watcher) Next(ctx context.Context) ([]Event, error) {
	for {
		if events, err := w.poll(); err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.wake:
		}
	}
}

// poll returns the next events, or none if there are none yet.
func (w *watcher) poll() ([]Event, error) {
	for more := true; more; {
		if events := w.takeInitial(); len(events) > 0 {
			return events, nil
		}
		var changes []*change
		var err error
		if changes, more, err = w.read(); err != nil {
			return nil, err
		}
		if events := w.translate(changes); len(events) > 0 {
			return events, nil
		}
	}
	if w.due.Swap(false) {
		w.startTimer()
		if e, ok := w.bookmark(); ok {
			return []Event{e}, nil
		}
	}
	return nil, nil
}

// startTimer has a bookmark become due.
func (w *watcher) startTimer() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.ended {
		return
	}
	w.timer = w.c.b.clock.AfterFunc(w.untilBookmark(), func() { // a new one each time: clocks of tests block on one that is reset
		w.due.Store(true)
		w.signal()
	})
}

// Stop implements Watcher.
func (w *watcher) Stop() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if !w.ended {
		w.c.watchers.remove(w, w.c.fields)
		w.ended = true
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.signal()
}

// takeInitial delivers the state that the watch began with, piece by piece. Of what is
// there is kept where the watch is, and no list: fifty informers that begin at once would
// have fifty of them.
func (w *watcher) takeInitial() []Event {
	if w.initial == nil {
		return nil
	}
	events, more := w.batch[:0], false
	seen := labelMatches{}
	w.initial.ascend(w.match.prefix(), w.from, func(_ *Block, _ int, records []*Record) bool {
		for i, r := range records {
			if len(events) == watchBatch {
				w.from, more = records[i].Key, true
				return false
			}
			if w.match.selects(r, seen) {
				events = append(events, Event{Type: Added, Record: w.s.sharedView(r), Revision: r.Revision})
			}
		}
		return true
	})
	w.batch = events
	if !more {
		w.initial, w.batch = nil, nil
		if w.endMark {
			w.endMark = false
			w.sent = w.initialRev
			events = append(events, Event{Type: Bookmark, Revision: w.initialRev, InitialEventsEnd: true})
		}
	}
	return events
}

// read returns the next changes from the window. more says that there may be
// further ones.
func (w *watcher) read() (changes []*change, more bool, err error) {
	c := w.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	if w.ended {
		return nil, false, c.tooOld(w.sent, w.oldest)
	}
	if !w.pending {
		return nil, false, nil
	}
	if w.next < c.window.first {
		return nil, false, c.tooOld(w.sent, c.window.floor)
	}
	end := min(c.window.end(), w.next+watchBatch)
	changes = make([]*change, 0, end-w.next)
	for bytes := 0; w.next < end && bytes < watchBatchBytes; w.next++ {
		ch := c.window.at(w.next)
		bytes += ch.size()
		changes = append(changes, ch)
	}
	w.pending = w.next < c.window.end()
	return changes, w.pending, nil
}

// translate makes events of the changes that concern the watcher. What begins
// to match is added, what ceases to is deleted.
func (w *watcher) translate(changes []*change) []Event {
	var events []Event
	for _, ch := range changes {
		if ch.rev <= w.after {
			continue
		}
		is := ch.cur != nil && w.match.matches(ch.cur)
		was := ch.prev != nil && w.match.matches(ch.prev)
		e := Event{Record: ch.cur, Revision: ch.rev}
		switch {
		case is && was:
			e.Type = Modified
		case is:
			e.Type = Added
		case was:
			e.Type, e.Record = Deleted, ch.gone()
		default:
			continue
		}
		e.Record = w.s.sharedView(e.Record)
		events = append(events, e)
	}
	if n := len(events); n > 0 {
		w.sent = events[n-1].Revision
	}
	return events
}

// bookmark returns a bookmark at the present revision, if all before it has
// been delivered. Before the deadline there is none, as in Kubernetes, where nothing
// of the resource has changed.
func (w *watcher) bookmark() (Event, bool) {
	w.c.mu.RLock()
	defer w.c.mu.RUnlock()
	rev := w.c.reachedLocked()
	if w.pending || w.ended || rev < w.after || w.closing() && w.c.window.after(w.after) == w.c.window.end() {
		return Event{}, false
	}
	w.sent = max(w.sent, rev)
	return Event{Type: Bookmark, Revision: w.sent}, true
}

// closing reports whether the deadline is near.
func (w *watcher) closing() bool {
	return !w.deadline.IsZero() && w.deadline.Sub(w.c.b.clock.Now()) <= bookmarkLead
}

// untilBookmark is the time to the next bookmark: the regular one, or the one
// that lets a client resume closely after the deadline of its watch.
func (w *watcher) untilBookmark() time.Duration {
	if !w.deadline.IsZero() {
		left := w.deadline.Sub(w.c.b.clock.Now()) - bookmarkLead
		if left > 0 && left < bookmarkEvery {
			return left
		}
	}
	return bookmarkEvery
}
