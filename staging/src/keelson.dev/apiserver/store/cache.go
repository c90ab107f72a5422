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

// cacheState is the lifecycle state of a cache.
type cacheState int

const (
	idle    cacheState = iota // the store has not been used; the cache may buffer events for a while
	loading                   // events are buffered until the load is complete
	ready                     // events are applied as soon as they arrive
	closed

	// outside is not a state of a cache. The method snapshot returns it if the requested state is
	// older than the window.
	outside
)

// cache holds the present state of one resource and its recent changes.
//
// Invariant: while the cache is ready, records is the state at revision rev, indexes contain the
// same records, and window contains every change after window.floor. Only one goroutine at a time
// applies events: the loader's goroutine within install, and afterwards the backend's dispatcher.
type cache struct {
	b   *Backend
	log *slog.Logger

	// Copied from the resource's Config, except that prefix includes the prefix of all resources.
	prefix     string // ends with a slash
	codec      Codec
	attrs      func(Object) Attrs
	peek       func(data []byte) (Attrs, bool) // may be nil
	reencode   func([]byte) ([]byte, bool)     // may be nil
	finalState func([]byte) ([]byte, bool)     // may be nil
	fields     []string                        // indexed fields
	expires    bool                            // objects have a TTL

	pending  *pendingWrites
	received atomic.Int64 // events received so far

	// Lists by source: all records of the cache, the records of an index, and the storage.
	cachedLists, indexedLists, storedLists listCounts

	// mu guards all fields below.
	mu sync.RWMutex

	// Loading of the cache.
	state  cacheState
	gen    int           // counts resets
	loadAt int64         // revision at which to load; 0 for the present one
	loaded chan struct{} // closed when the load is complete
	base   int64         // revision of the loaded state
	// buffer contains the events that the function install applies to the loaded state: all events
	// since loading began and, if loadAt is not 0, the older events since revision loadAt. An idle
	// cache drops it at keepUntil.
	buffer    []kv.Event
	keepUntil time.Time

	// The state of the resource, once the cache is ready.
	rev        int64 // revision of the last event applied, or of the load
	records    *tree
	indexes    map[string]index // indexes by field
	window     window
	watchers   watcherSet
	unreadable map[string]bool // keys of the objects that cannot be decrypted or decoded
}

func newCache(b *Backend, prefix string, cfg *Config) *cache {
	c := &cache{
		b: b, log: b.log.With("resource", cfg.GroupResource.String()), prefix: b.root + prefix,
		codec: cfg.Codec, attrs: cfg.Attrs, peek: cfg.Peek, reencode: cfg.Reencode, finalState: cfg.FinalState,
		fields: cfg.IndexFields, expires: cfg.TTL != nil,
		pending: newPendingWrites(), loaded: make(chan struct{}),
	}
	c.clearLocked()
	return c
}

func (c *cache) clearLocked() {
	c.records = newTree(c.b.encodings)
	c.indexes = make(map[string]index, len(c.fields))
	for _, f := range c.fields {
		c.indexes[f] = index{}
	}
	c.unreadable = map[string]bool{}
}

// start queues an idle cache for loading, and does not wait. From then on watches can start at any
// later event. The other caches with the same prefix are loaded too, because a client may read a
// revision from one of them and then watch another from this revision.
func (c *cache) start() {
	c.mu.RLock()
	started := c.state != idle
	c.mu.RUnlock()
	if started {
		return
	}
	for _, other := range c.b.caches.siblings(c) {
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
		// The dispatcher has already passed on all events up to this revision. The cache will
		// receive all later ones.
		c.loadAt = c.b.dispatching.Load()
	}
	c.b.loader.add(c)
}

// wait starts the cache and blocks until it is ready.
func (c *cache) wait(ctx context.Context) error {
	c.start()
	for {
		c.mu.RLock()
		state, loaded := c.state, c.loaded
		c.mu.RUnlock()
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

// isReady reports whether the cache is ready. It starts an idle cache.
func (c *cache) isReady() bool {
	c.start()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state == ready
}

// wantsLoad reports whether the cache waits for a load. It also returns the generation to pass to
// install, and the revision to load, where 0 means the present state.
func (c *cache) wantsLoad() (gen int, at int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.gen, c.loadAt, c.state == loading
}

// loadPresent makes the cache load the present state instead of a past one. install then ignores
// buffered events that the loaded state includes.
func (c *cache) loadPresent(gen int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen == gen {
		c.loadAt = 0
	}
}

// reset drops the state and queues another load, because a new watch begins after a revision (the
// argument from). All watchers end, because they may have missed events. An idle cache is not
// loaded: it buffers the new events until it is used or keepUntil has passed.
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
	c.b.loader.add(c)
}

// close drops the state and ends all watchers. The cache is not used again.
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

// install makes the cache ready with a loaded state, and applies the events received since the load
// began. It does nothing if the cache has been reset since generation gen.
func (c *cache) install(gen int, records []*Record, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != loading || c.gen != gen {
		return
	}
	c.records.fill(records)
	for _, r := range records {
		c.noteReadableLocked(r.Key, r)
	}
	for f, ix := range c.indexes {
		ix.fill(c.b.encodings, f, records)
	}
	c.base, c.rev = rev, rev
	c.window.reset(rev)
	c.restoreChangesLocked(records)
	c.pending.clear()
	for i := range c.buffer {
		if e := &c.buffer[i]; e.ModRevision > rev {
			c.applyLocked(e, c.record(e, nil))
		}
	}
	c.buffer = nil
	c.state = ready
	close(c.loaded)
}

// restoreChangesLocked adds the changes made at the revision of the load to the window if that
// revision changed more than one object. The comment on window.resume explains why.
func (c *cache) restoreChangesLocked(records []*Record) {
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

// apply processes the next events of the resource, which are in revision order. Only the dispatcher
// calls it.
func (c *cache) apply(events []kv.Event) {
	c.received.Add(int64(len(events)))
	records, live := c.presentRecords(events)
	if live { // before taking the lock, decode the objects that other servers wrote
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
			if !live { // the cache has become ready since presentRecords was called
				c.applyLocked(&events[i], c.record(&events[i], nil))
				continue
			}
			c.applyLocked(&events[i], records[i])
		}
		c.window.trim(&c.b.limits, c.b.clock.Now())
	}
}

// presentRecords returns, for each event, the present record of its object, or nil if the object
// does not exist. It returns false if the cache is not ready.
func (c *cache) presentRecords(events []kv.Event) ([]*Record, bool) {
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

// record returns the record of an event, or nil for a deletion. prev is the object's previous
// record, or nil.
func (c *cache) record(e *kv.Event, prev *Record) *Record {
	if e.Deleted {
		return nil
	}
	if r := c.pending.take(c, e); r != nil {
		return r
	}
	return c.decode(&e.Item, prev)
}

// decode returns the record of an item that this server did not write. If the value cannot be
// decrypted or decoded, the record has no attributes, so lists contain the object and readers that
// decode it get the error.
func (c *cache) decode(it *kv.Item, prev *Record) *Record {
	key := strings.TrimPrefix(it.Key, c.prefix)
	if it.Err != nil {
		c.log.Error("Failed to decrypt stored object", "key", key, "err", it.Err)
		return c.newSealed(key, it)
	}
	data, reencoded := c.reencoded(it.Value)
	attrs, err := c.attrsOf(data, it.ModRevision)
	if err != nil {
		c.log.Error("Failed to decode stored object", "key", key, "err", err)
		c.b.undecodable(it.Key)
	} else {
		attrs = c.b.attrs.intern(attrs, prev)
	}
	r := c.newRecord(key, it.ModRevision, data, attrs, nil)
	r.reencoded, r.broken = reencoded, err != nil
	return r
}

// reencoded returns stored bytes as the codec would write them now, and whether they differ from
// data. Defaults may have been added since the object was stored, and readers must see them.
func (c *cache) reencoded(data []byte) ([]byte, bool) {
	if c.reencode == nil {
		return data, false
	}
	return c.reencode(data)
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

// newRecord returns a record whose memory counts against the limits of the backend.
func (c *cache) newRecord(key string, rev int64, data []byte, attrs Attrs, obj Object) *Record {
	r := NewRecord(key, rev, data, attrs, c.codec, obj)
	r.budget = c.b.forms
	c.b.packer.added(len(data))
	if obj != nil {
		r.budget.spend(r, objectCost*len(data))
	}
	return r
}

// applyLocked applies one event to the state and wakes the watchers that may select it. cur is the
// record of the event; nil for a deletion.
func (c *cache) applyLocked(e *kv.Event, cur *Record) {
	if e.ModRevision <= c.base {
		return // the loaded state includes this event
	}
	key := strings.TrimPrefix(e.Key, c.prefix)
	prev := c.records.get(key)
	c.rev = max(c.rev, e.ModRevision)
	c.noteReadableLocked(key, cur)
	if prev == nil && cur == nil {
		return // the object was created and deleted before the load
	}
	if cur != nil {
		c.records.put(cur)
	} else {
		c.records.delete(key)
	}
	for f, ix := range c.indexes {
		ix.move(c.b.encodings, f, prev, cur)
	}
	if prev != nil && prev.broken || cur != nil && cur.broken {
		c.endWatchesLocked()
		return
	}
	ch := &change{rev: e.ModRevision, cur: cur, prev: prev, at: c.b.clock.Now(), finalState: c.finalState}
	pos := c.window.end()
	c.window.add(ch)
	c.watchers.notify(c.fields, ch, pos)
}

// trim drops changes that have become too old, and the buffered events of a cache that was not used
// before keepUntil.
func (c *cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.b.clock.Now()
	c.window.trim(&c.b.limits, now)
	if c.state == idle && now.After(c.keepUntil) {
		c.loadAt, c.buffer = 0, nil
	}
}

// reachedLocked returns the revision of the present state: it contains every event up to this
// revision and none after it.
func (c *cache) reachedLocked() int64 { return max(c.rev, c.b.barrier.reached()) }
