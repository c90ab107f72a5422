// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

const (
	defaultRoot       = "/registry"
	defaultFormBytes  = 48 << 20
	followRetry       = time.Second
	housekeepInterval = 15 * time.Second
	// replayRevisions is how far back the watch of a starting server begins, if
	// that has not been compacted; backlogKeep is how long resources nobody has
	// used yet keep what it brought.
	replayRevisions = 10_000
	backlogKeep     = 2 * time.Minute
)

// BackendConfig says what a Backend stands on.
type BackendConfig struct {
	KV kv.Store
	// Root is the path above all keys; "/registry" when empty.
	Root  string
	Clock clock.Clock
	Log   *slog.Logger
	// FormBytes bounds the memory of encodings and decoded objects that records
	// and blocks of all stores remember; 48 MiB when 0. Blocks get two thirds of it.
	FormBytes int64
	// Window is how long events stay available to watches and to lists of the
	// past; 75 seconds, as in Kubernetes, when 0.
	Window time.Duration
}

// Backend is what the stores of one server's resources share: the key-value
// store and a single watch on all of it.
//
// There is one watch, not one for each resource, because then how far it has
// come is one number for all caches, and nearly every write moves it: a
// consistent read almost never has to ask for a progress notification, and a
// cluster with a hundred idle kinds costs one goroutine. Caches load at the
// first use of their store; events of resources nobody uses are dropped.
//
// When a server starts, the watch begins a little in the past and caches load
// the state of that moment, so that the clients of a server that was killed
// resume their watches where they were instead of listing everything again.
type Backend struct {
	kv     kv.Store
	root   string
	clock  clock.Clock
	log    *slog.Logger
	forms  *formBudget
	pieces *pieceCache
	packs  *packs
	attrs  *attrSets
	limits windowLimits

	fresh    *freshness
	revision revisionReader
	loads    *loadQueue

	// from is the revision that the watch was opened after, 0 while it has no
	// place: caches load at it or later.
	from atomic.Int64
	// compacted is the revision before which the key-value store keeps no states,
	// as far as is known. The past ends there for lists, also where the window
	// reaches further back: that there was little to do must not make a token
	// live longer than it would otherwise.
	compacted atomic.Int64

	// dispatching is the revision up to which caches have been told of events, or
	// are being told at this moment.
	dispatching atomic.Int64
	missed      bool // events have been lost to a compaction; used by Run's goroutine only

	mu     sync.RWMutex
	caches map[string]*shelf // by "<prefix>/" below root
	depth  int               // most path segments of any prefix
	watch  kv.Watch          // the present one; nil between watches
}

// NewBackend returns a Backend, which serves once Run has been called.
func NewBackend(cfg BackendConfig) *Backend {
	b := &Backend{
		kv: cfg.KV, root: strings.TrimSuffix(cfg.Root, "/") + "/", clock: cfg.Clock, log: cfg.Log,
		limits: defaultLimits, caches: map[string]*shelf{}, loads: newLoadQueue(),
	}
	if cfg.Root == "" {
		b.root = defaultRoot + "/"
	}
	if cfg.Window != 0 {
		b.limits.age = cfg.Window
	}
	if cfg.FormBytes == 0 {
		cfg.FormBytes = defaultFormBytes
	}
	b.forms = newFormBudget(cfg.FormBytes / 3)
	b.pieces = newPieceCache(cfg.FormBytes / 3 * 2)
	b.packs, b.attrs = newPacks(), newAttrSets()
	b.fresh = newFreshness(cfg.Clock)
	b.revision.read = cfg.KV.Revision
	return b
}

// Run follows the key-value store and loads caches until ctx is done. No
// goroutine outlives it.
func (b *Backend) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { b.runProgress(ctx) })
	wg.Go(func() { b.runHousekeeping(ctx) })
	wg.Go(func() { b.runLoads(ctx) })
	wg.Go(func() { b.runPacking(ctx) })
	defer b.endAll()
	for {
		err := b.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, kv.ErrCompacted) {
			b.log.Error("Watch of the key-value store ended", "err", err)
		}
		if !errors.Is(err, kv.ErrCompacted) && !sleep(ctx, b.clock, followRetry) {
			return nil
		}
	}
}

// Ready is nil while the backend follows the key-value store.
func (b *Backend) Ready() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.watch == nil {
		return errors.New("storage is (re)initializing")
	}
	return nil
}

// follow opens the watch, where the last one ended if possible, and dispatches
// what it delivers.
func (b *Backend) follow(ctx context.Context) error {
	from, target := b.fresh.reached(), int64(0)
	if b.from.Load() == 0 {
		var err error
		if from, target, err = b.origin(ctx); err != nil {
			return fmt.Errorf("revision: %w", err)
		}
	}
	w, err := b.kv.Watch(ctx, b.root, from+1)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	if b.from.Load() == 0 {
		b.position(from, target)
	}
	b.setWatch(w)
	defer b.setWatch(nil)
	for {
		batch, err := w.Next(ctx)
		if errors.Is(err, kv.ErrCompacted) {
			b.missed = true
			b.from.Store(0) // everything starts anew
		}
		if err != nil {
			return err
		}
		b.dispatch(batch)
	}
}

// origin returns where the watch is to begin, and the present revision.
func (b *Backend) origin(ctx context.Context) (from, target int64, err error) {
	target, err = b.kv.Revision(ctx)
	if err != nil || b.missed {
		return target, target, err
	}
	if err := b.learnCompacted(ctx); err != nil {
		return 0, 0, err
	}
	return max(1, target-replayRevisions, min(b.compacted.Load(), target)), target, nil
}

// learnCompacted reads how far the servers of this store have compacted it.
func (b *Backend) learnCompacted(ctx context.Context) error {
	item, _, err := b.kv.Get(ctx, kv.CompactRevKey)
	if err != nil || item == nil {
		return err
	}
	if rev, ok := kv.CompactedRev(item); ok {
		b.Compacted(rev)
	}
	return nil
}

// Compacted tells the backend that the key-value store keeps no states before rev; else
// it learns of that within housekeepInterval. Lists of an earlier state fail from now on.
func (b *Backend) Compacted(rev int64) {
	for known := b.compacted.Load(); rev > known && !b.compacted.CompareAndSwap(known, rev); known = b.compacted.Load() {
	}
}

// position tells where a new watch starts, and has all caches load from there:
// what happened before it is not known to them. No cache is used before it has
// got as far as target, so that clients are not shown the past as the present.
func (b *Backend) position(from, target int64) {
	b.from.Store(from)
	b.dispatching.Store(from)
	now := b.clock.Now()
	b.mu.RLock()
	b.all(func(c *cache) { c.reset(from, now.Add(backlogKeep)) })
	b.mu.RUnlock()
	b.fresh.advance(from)
	b.loads.open(target)
}

func (b *Backend) setWatch(w kv.Watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = w
}

// dispatch gives each cache its part of a batch, in order and at once, and then
// tells everybody how far we are.
func (b *Backend) dispatch(batch kv.Batch) {
	b.dispatching.Store(batch.Revision)
	// The events of one revision are applied at once: where it has several they are
	// in key order, so that those of a resource are together.
	var s *shelf
	first := 0
	for i := range batch.Events {
		next := b.shelfOf(batch.Events[i].Key)
		if next != s {
			s.apply(batch.Events[first:i])
			s, first = next, i
		}
	}
	s.apply(batch.Events[first:])
	b.fresh.advance(batch.Revision)
}

// shelf has the caches of one prefix: one for each version of a resource that has a
// store of its own. It does not change; a new one takes its place.
type shelf struct{ caches []*cache }

func (s *shelf) apply(events []kv.Event) {
	if s == nil {
		return
	}
	for _, c := range s.caches {
		c.apply(events)
	}
}

// all calls f with each cache. The caller holds the lock.
func (b *Backend) all(f func(*cache)) {
	for _, s := range b.caches {
		for _, c := range s.caches {
			f(c)
		}
	}
}

// shelfOf finds the caches of a full key: those of the longest registered prefix.
func (b *Backend) shelfOf(key string) *shelf {
	b.mu.RLock()
	defer b.mu.RUnlock()
	rel := strings.TrimPrefix(key, b.root)
	var found *shelf
	for i, segments := 0, 0; i < len(rel) && segments < b.depth; i++ {
		if rel[i] != '/' {
			continue
		}
		segments++
		if c, ok := b.caches[rel[:i+1]]; ok {
			found = c
		}
	}
	return found
}

// together are the caches of c's prefix; c itself also when it is registered no more.
func (b *Backend) together(c *cache) []*cache {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.caches[strings.TrimPrefix(c.prefix, b.root)]
	if s == nil || !slices.Contains(s.caches, c) {
		return []*cache{c}
	}
	return s.caches
}

func (b *Backend) register(prefix string, c *cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &shelf{}
	if old := b.caches[prefix]; old != nil {
		s.caches = append(s.caches, old.caches...)
	}
	s.caches = append(s.caches, c)
	b.caches[prefix] = s
	b.depth = max(b.depth, strings.Count(prefix, "/"))
}

func (b *Backend) unregister(prefix string, c *cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.caches[prefix]
	if old == nil {
		return
	}
	s := &shelf{}
	for _, other := range old.caches {
		if other != c {
			s.caches = append(s.caches, other)
		}
	}
	if b.caches[prefix] = s; len(s.caches) == 0 {
		delete(b.caches, prefix)
	}
}

// endAll ends all caches and watchers when the server stops.
func (b *Backend) endAll() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	b.all((*cache).close)
}

// runHousekeeping drops events that have become old in resources where nothing
// happens, and learns of compactions.
func (b *Backend) runHousekeeping(ctx context.Context) {
	ticker := b.clock.NewTicker(housekeepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			b.mu.RLock()
			b.all((*cache).trim)
			b.mu.RUnlock()
			if err := b.learnCompacted(ctx); err != nil && ctx.Err() == nil {
				b.log.Warn("Compaction of the key-value store is not known", "err", err)
			}
		}
	}
}

// sleep waits for d; it reports false when ctx ended first.
func sleep(ctx context.Context, clock clock.Clock, d time.Duration) bool {
	t := clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}
