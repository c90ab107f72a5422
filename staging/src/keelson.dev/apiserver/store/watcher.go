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
	// watchBatch bounds the number of changes, and of initial objects, in one batch.
	watchBatch = 256
	// watchBatchBytes is the size in bytes at which a batch of changes ends. A batch stays in
	// memory while its client does not read, even if the window has dropped the changes.
	watchBatchBytes = 1 << 20
	// bookmarkEvery is the approximate interval of bookmarks on a watch without events.
	// bookmarkLead is how long before its deadline a watch gets its last bookmark.
	bookmarkEvery = time.Minute
	bookmarkLead  = 2 * time.Second
)

// watcher is one watch on a cache. It has a position in the cache's window: that of the next change
// to read.
//
// Invariant: while there is nothing to read (pending is false), a watcher has no position. Changes
// that it does not select do not set one, so it can wait indefinitely without expiring. A change
// that it may select sets the position and wakes Next.
type watcher struct {
	s     *Store
	c     *cache // the cache of s
	match matcher
	after int64 // only changes after this revision are delivered

	// The present state, which some watches deliver first.
	initial    *snapshot // still to be delivered, beginning at key from; nil if nothing is left
	from       string
	initialRev int64   // revision of that state
	batch      []Event // buffer for a batch of that state
	endMark    bool    // a bookmark has to follow that state

	// Bookmarks.
	bookmarks bool
	deadline  time.Time   // zero if unknown
	due       atomic.Bool // a bookmark should be sent now
	sent      int64       // revision of the last event or bookmark delivered

	wake chan struct{} // receives when the method poll may have a result

	// Guarded by c.mu: the timer, and the position in the window, which has the latest changes of the
	// cache.
	timer   clock.Timer // timer of the next bookmark; may be nil
	pending bool        // changes at position next or later may be selected
	next    uint64
	ended   bool  // the watcher may have missed events
	oldest  int64 // earliest revision after which a watch could have started, for the error text
}

var _ Watcher = (*watcher)(nil)

// notify sets the position to pos, unless the watcher has a position already, and wakes Next. The
// caller holds c.mu.
func (w *watcher) notify(pos uint64) {
	if w.pending {
		return
	}
	w.pending, w.next = true, pos
	w.signal()
}

// end ends the watcher, because it may have missed events. The caller holds the lock of the cache.
func (w *watcher) end(oldest int64) {
	w.ended, w.oldest = true, oldest
	w.signal()
}

// signal wakes Next. It does not block, because the caller may hold c.mu or the lock of a clock.
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

// poll returns the next events, or an empty slice if no event is ready.
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

// startTimer starts or restarts the timer of the next bookmark.
func (w *watcher) startTimer() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.ended {
		return
	}
	// A new timer is made each time: a fake clock deadlocks if the function of a timer resets that
	// timer.
	w.timer = w.c.b.clock.AfterFunc(w.untilBookmark(), func() {
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

// takeInitial returns the next batch of the initial state. The watcher keeps a snapshot and the
// next key. It does not keep a list of records, because fifty informers that start at once would
// need fifty lists.
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

// read returns the next changes from the window. The result more reports whether the caller should
// read again at once.
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

// translate returns the events of the changes that the watcher selects. An object that begins to
// match is Added, and one that ceases to match is Deleted.
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

// bookmark returns a bookmark at the present revision if all events up to it have been delivered.
// As in Kubernetes, the last bookmark before the deadline is omitted if the resource has not
// changed.
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

// closing reports whether the watch's deadline is less than bookmarkLead away.
func (w *watcher) closing() bool {
	return !w.deadline.IsZero() && w.deadline.Sub(w.c.b.clock.Now()) <= bookmarkLead
}

// untilBookmark returns the time until the next bookmark: the regular one, or the last one shortly
// before the deadline, from which the client can resume after the watch has ended.
func (w *watcher) untilBookmark() time.Duration {
	if !w.deadline.IsZero() {
		left := w.deadline.Sub(w.c.b.clock.Now()) - bookmarkLead
		if left > 0 && left < bookmarkEvery {
			return left
		}
	}
	return bookmarkEvery
}
