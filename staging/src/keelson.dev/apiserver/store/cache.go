// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/apiserver/store/kv"
)

// cacheState is where a cache is in its life.
type cacheState int

const (
	idle    cacheState = iota // nobody has used it; it may keep a backlog of events
	loading                   // events are kept until the load is done
	ready                     // events are applied as they come
	closed

	// outside is no state of a cache: see snapshot.
	outside
)

// cache holds the present state of one resource and its recent changes.
//
// Events are applied by one goroutine at a time: the dispatcher's once the cache
// is ready, the loader's at the moment it becomes so.
type cache struct {
	b      *Backend
	prefix string // of full keys, with the slash at its end
	codec  Codec
	attrs  func(Object) Attrs
	peek   func(data []byte) (Attrs, bool) // may be nil
	renew  func([]byte) ([]byte, bool)     // may be nil
	end    func([]byte) ([]byte, bool)     // may be nil
	fields []string                        // indexed
	ends   bool                            // objects end by themselves
	log    *slog.Logger
	writes ownWrites

	received atomic.Int64 // events

	mu       sync.RWMutex
	state    cacheState
	gen      int   // counts resets
	loadAt   int64 // revision to load; 0: the present
	loaded   chan struct{}
	problem  error // why the last attempt to load failed, where others wait in vain
	records  *tree
	indexes  map[string]index
	base     int64 // revision of the load
	rev      int64 // of the state: that of the load, or of the last event applied
	window   window
	watchers watcherSet
	// buffer has all events after loadAt (idle, loadAt not 0) or at least those
	// since loading began. keepUntil is when an idle cache gives it up.
	buffer    []kv.Event
	keepUntil time.Time
}

func newCache(b *Backend, prefix string, cfg *Config) *cache {
	c := &cache{
		b: b, prefix: b.root + prefix, codec: cfg.Codec, attrs: cfg.Attrs, peek: cfg.Peek, renew: cfg.Renew, end: cfg.End, fields: cfg.IndexFields, ends: cfg.TTL != nil,
		log: b.log.With("resource", cfg.GroupResource.String()), loaded: make(chan struct{}),
		writes: ownWrites{byKey: map[string][]*ownWrite{}},
	}
	c.clearLocked()
	return c
}

func (c *cache) clearLocked() {
	c.records = newTree(c.b.pieces)
	c.indexes = make(map[string]index, len(c.fields))
	for _, f := range c.fields {
		c.indexes[f] = index{}
	}
}

// start has an idle cache loaded, and those of the same prefix: clients take the
// revisions that they know from one to the other. It does not wait. Nothing that
// happens from now on is too old to be watched later.
func (c *cache) start() {
	c.mu.RLock()
	started := c.state != idle
	c.mu.RUnlock()
	if started {
		return
	}
	for _, other := range c.b.together(c) {
		other.startAlone()
	}
}

func (c *cache) startAlone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != idle {
		return
	}
	c.state = loading
	if c.loadAt == 0 {
		// What this cache has not been told of is not after this revision.
		c.loadAt = c.b.dispatching.Load()
	}
	c.b.loads.add(c)
}

// wait starts the cache and blocks until it is loaded.
func (c *cache) wait(ctx context.Context) error {
	c.start()
	for {
		c.mu.RLock()
		state, loaded, problem := c.state, c.loaded, c.problem
		c.mu.RUnlock()
		if problem != nil {
			return apierrors.NewInternalError(problem)
		}
		switch state {
		case ready:
			return nil
		case closed:
			return apierrors.NewServiceUnavailable(msgNotReady)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-loaded:
		}
	}
}

func (c *cache) isReady() bool {
	c.start()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state == ready
}

// loading returns the generation to load, if there is one, and the revision to
// load it at.
func (c *cache) loading() (gen int, at int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.gen, c.loadAt, c.state == loading
}

// loadPresent gives up loading a state of the past. The buffer stays: of it,
// events up to the load's revision will be ignored.
func (c *cache) loadPresent(gen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen == gen {
		c.loadAt = 0
	}
}

// reset forgets everything because the watch begins anew, after revision from,
// and loads again. All watchers end: they have missed something. An idle cache
// keeps what comes until it is used or the time is over.
func (c *cache) reset(from int64, keepUntil time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed {
		return
	}
	c.gen++
	c.loadAt, c.buffer, c.keepUntil = from, nil, keepUntil
	if c.state == idle {
		return
	}
	if c.state == ready {
		c.loaded = make(chan struct{})
	}
	c.state = loading
	c.watchers.endAll(c.window.floor)
	c.clearLocked()
	c.b.loads.add(c)
}

// close ends the cache and all its watchers.
func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed {
		return
	}
	if c.state != ready {
		close(c.loaded)
	}
	c.state = closed
	c.buffer = nil
	c.watchers.endAll(c.window.floor)
	c.clearLocked()
	c.window.reset(c.rev)
}

// install puts a loaded state into service, with the events that came since.
func (c *cache) install(gen int, records []*Record, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != loading || c.gen != gen {
		return
	}
	c.records.fill(records)
	for f, ix := range c.indexes {
		ix.fill(c.b.pieces, f, records)
	}
	c.base, c.rev = rev, rev
	c.window.reset(rev)
	c.recallLocked(records)
	c.writes.clear()
	for i := range c.buffer {
		if e := &c.buffer[i]; e.ModRevision > rev {
			c.applyLocked(e, c.record(e, nil))
		}
	}
	c.buffer = nil
	c.state, c.problem = ready, nil
	close(c.loaded)
}

// recallLocked has the window hold what has changed at the revision of the load,
// if that was several objects: see window.resume.
func (c *cache) recallLocked(records []*Record) {
	latest := func(r *Record) bool { return r.Revision == c.base }
	first := slices.IndexFunc(records, latest)
	if first < 0 || !slices.ContainsFunc(records[first+1:], latest) {
		return
	}
	now := c.b.clock.Now()
	for _, r := range records[first:] {
		if latest(r) {
			c.window.add(&change{rev: c.base, cur: r, at: now})
		}
	}
}

// fail notes that stored values cannot be read, so that nobody waits for them.
// The load is tried again all the same.
func (c *cache) fail(gen int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != loading || c.gen != gen {
		return
	}
	c.problem = err
	close(c.loaded)
	c.loaded = make(chan struct{})
}

// unreadable reports whether one of events has come without its value.
func unreadable(events []kv.Event) bool {
	return slices.ContainsFunc(events, func(e kv.Event) bool { return e.Err != nil })
}

// apply takes events of this resource, in order. Only the dispatcher calls it.
func (c *cache) apply(events []kv.Event) {
	if unreadable(events) {
		// Anew, until everything can be read.
		c.reset(0, time.Time{})
		return
	}
	c.received.Add(int64(len(events)))
	records, live := c.former(events)
	if live { // decode what other servers wrote without holding up readers
		for i := range events {
			records[i] = c.record(&events[i], records[i])
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case idle:
		if c.loadAt != 0 {
			c.buffer = append(c.buffer, events...)
		}
	case loading:
		c.buffer = append(c.buffer, events...)
	case ready:
		for i := range events {
			if !live { // became ready since
				c.applyLocked(&events[i], c.record(&events[i], nil))
				continue
			}
			c.applyLocked(&events[i], records[i])
		}
		c.window.trim(&c.b.limits, c.b.clock.Now())
	}
}

// former returns the present states of objects that events are about, if the
// cache is ready.
func (c *cache) former(events []kv.Event) ([]*Record, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.state != ready {
		return nil, false
	}
	records := make([]*Record, len(events))
	for i := range events {
		if !events[i].Deleted {
			records[i] = c.records.get(strings.TrimPrefix(events[i].Key, c.prefix))
		}
	}
	return records, true
}

// record makes the record of an event; nil for a deletion. prev is the object's
// former state, if it is at hand.
func (c *cache) record(e *kv.Event, prev *Record) *Record {
	if e.Deleted {
		return nil
	}
	if r := c.writes.take(c, e); r != nil {
		return r
	}
	return c.decode(&e.Item, prev)
}

// decode makes a record of an item that this server did not write. Bytes that
// cannot be decoded become a record without labels, so that the object is seen
// and the error is its reader's.
func (c *cache) decode(it *kv.Item, prev *Record) *Record {
	key := strings.TrimPrefix(it.Key, c.prefix)
	data, renewed := c.renewed(it.Value)
	attrs, err := c.attrsOf(data, it.ModRevision)
	if err != nil {
		c.log.Error("Stored object cannot be decoded", "key", key, "err", err)
	} else {
		attrs = c.b.attrs.shrink(attrs, prev)
	}
	r := c.newRecord(key, it.ModRevision, data, attrs, nil)
	r.renewed, r.broken = renewed, err != nil
	return r
}

// renewed is what a record has of stored bytes: readers are answered from it, and are
// to see defaults that are newer than what is stored.
func (c *cache) renewed(data []byte) ([]byte, bool) {
	if c.renew == nil {
		return data, false
	}
	return c.renew(data)
}

func (c *cache) attrsOf(data []byte, rev int64) (Attrs, error) {
	if c.peek != nil {
		if attrs, ok := c.peek(data); ok {
			return attrs, nil
		}
	}
	obj, err := c.codec.Decode(data, rev)
	if err != nil {
		return Attrs{}, err
	}
	return c.attrs(obj), nil
}

func (c *cache) newRecord(key string, rev int64, data []byte, attrs Attrs, obj Object) *Record {
	r := NewRecord(key, rev, data, attrs, c.codec, obj)
	r.budget = c.b.forms
	c.b.packs.came(len(data))
	if obj != nil {
		r.budget.spend(r, objectCost*len(data))
	}
	return r
}

// applyLocked changes the state by one event and wakes whom it may concern.
func (c *cache) applyLocked(e *kv.Event, cur *Record) {
	if e.ModRevision <= c.base {
		return // the load was ahead of the watch
	}
	key := strings.TrimPrefix(e.Key, c.prefix)
	prev := c.records.get(key)
	c.rev = max(c.rev, e.ModRevision)
	if prev == nil && cur == nil {
		return // came and went before we looked
	}
	if cur != nil {
		c.records.put(cur)
	} else {
		c.records.delete(key)
	}
	for f, ix := range c.indexes {
		ix.move(c.b.pieces, f, prev, cur)
	}
	ch := &change{rev: e.ModRevision, cur: cur, prev: prev, at: c.b.clock.Now(), end: c.end}
	pos := c.window.end()
	c.window.add(ch)
	c.watchers.notify(c.fields, ch, pos)
}

// trim drops events that have become too old, and a backlog nobody wanted.
func (c *cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.b.clock.Now()
	c.window.trim(&c.b.limits, now)
	if c.state == idle && now.After(c.keepUntil) {
		c.loadAt, c.buffer = 0, nil
	}
}

// reachedLocked is the revision that the present state is of: nothing up to it
// is missing, and nothing after it is in.
func (c *cache) reachedLocked() int64 { return max(c.rev, c.b.fresh.reached()) }
