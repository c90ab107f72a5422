// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"keelson.dev/apiserver/tracing"
)

// Watch implements Reader.
func (s *Store) Watch(ctx context.Context, opts WatchOptions) (Watcher, error) {
	ctx, span := s.startAll(ctx, "cacher.Watch")
	defer span.End()
	rev, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	selected, err := s.cachePredicate(opts.Predicate)
	if err != nil {
		return nil, err
	}
	if err := s.cache.wait(ctx); err != nil {
		return nil, err
	}
	wantState := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if rev == 0 && opts.SendInitialEvents != nil && opts.ResourceVersion == "" {
		// In the Kubernetes API, "most recent" means the present revision of the key-value store.
		if rev, err = s.b.revision.current(ctx); err != nil {
			return nil, translate(ctx, err)
		}
	}
	if wantState && rev > 0 {
		if err := s.b.barrier.wait(ctx, rev); err != nil {
			return nil, err
		}
		span.Event(eventFresh)
	}
	if opts.SendInitialEvents == nil && rev == 0 {
		wantState = true // without SendInitialEvents, "" and "0" ask for the present state too
	}
	w := &watcher{
		s: s, c: s.cache, match: newMatcher(selected), after: rev,
		endMark:   opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowBookmarks,
		bookmarks: opts.AllowBookmarks, wake: make(chan struct{}, 1),
	}
	for {
		joined, err := s.cache.join(w, wantState, span)
		if err != nil {
			return nil, err
		}
		if joined {
			break
		}
		if err := s.cache.wait(ctx); err != nil { // the cache has been reset, so wait for it again
			return nil, err
		}
	}
	if opts.Timeout > 0 {
		w.deadline = s.b.clock.Now().Add(opts.Timeout)
	}
	if w.bookmarks {
		w.startTimer()
	}
	return w, nil
}

// join adds w to the cache's watchers. If wantState is set, w starts with the present state, and
// otherwise after revision w.after. join returns false if the cache is not ready.
func (c *cache) join(w *watcher, wantState bool, span *tracing.Span) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	span.Event(eventLocked)
	if c.state != ready {
		return false, nil
	}
	switch {
	case wantState:
		snap := c.snapshotLocked(&w.match)
		w.initial = &snap
		w.initialRev = snap.rev
		w.after = snap.rev
	case w.after == 0:
		w.after = c.reachedLocked()
	case w.after < c.window.floor:
		return false, c.tooOld(w.after, c.window.floor)
	default:
		pos, again := c.window.resume(w.after)
		if again {
			w.after--
		}
		if pos < c.window.end() {
			w.notify(pos)
		}
	}
	w.sent = w.after
	c.watchers.add(w, c.fields)
	return true, nil
}
