// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// replayRevisions is the number of revisions before the present one at which a starting server
	// begins its watch, unless they have been compacted.
	replayRevisions = 10_000
	// backlogKeep is how long after the start of a watch an unused cache keeps the events of the
	// watch.
	backlogKeep = 2 * time.Minute
)

// BackendConfig is the configuration of a Backend. KV, Clock and Log are required.
type BackendConfig struct {
	KV kv.Store
	// Outdated reports whether the value of a key would be stored differently now, for example
	// encrypted by another key. key is the full key. If Outdated returns true, an update that
	// changes nothing writes the object all the same. It is nil if values never become outdated.
	Outdated func(ctx context.Context, key string) (bool, error)
	// Recheck reports whether values that were read before may be unreadable now, for example because
	// the server has lost a key. Consistent reads of single objects then do not use the cache. It is
	// nil if values always stay readable.
	Recheck func() bool
	// Undecodable is called for each value that was read and could not be decoded. key is the full key. It
	// may be nil.
	Undecodable func(key string)
	// Admit is called before an object is written. If it returns an error, nothing is written, and the
	// client gets the error. It is not called when an object is removed. It is nil if all writes are
	// admitted.
	Admit func(ctx context.Context, g Growth) error
	// Root is the prefix of all keys. If it is empty, "/registry" is used.
	Root  string
	Clock clock.Clock
	Log   *slog.Logger
	// FormBytes bounds the memory of the encodings and decoded objects that all stores keep; 0
	// means 48 MiB. Encodings of blocks get two thirds of it; encodings and decoded objects of single
	// records get one third.
	FormBytes int64
	// Window is how long events stay available to watches and to lists of the past. If it is 0, it
	// is 75 seconds, as in Kubernetes.
	Window time.Duration
}

// Backend is what the stores on one key-value store share: one watch on all keys, and the memory
// limits of all caches. It is safe for concurrent use.
//
// Nearly every write to the key-value store is an event of this watch, and so shows how far the
// watch has come. Therefore a consistent read almost never has to request a progress notification.
// Because there is one watch for all keys, a hundred idle kinds cost one goroutine. A cache is loaded
// when its store is first used; events of unused resources are dropped.
//
// When a server starts, the watch begins up to 10,000 revisions before the present one, and caches
// load the state at that revision. So clients of a server that was killed can resume their watches
// instead of listing everything again.
type Backend struct {
	kv       kv.Store
	outdated func(ctx context.Context, key string) (bool, error)
	recheck  func() bool                               // not nil
	admit    func(ctx context.Context, g Growth) error // nil if all writes are admitted

	undecodable func(key string) // not nil
	root        string           // with a slash at its end
	clock       clock.Clock
	log         *slog.Logger

	// State that all caches share.
	caches    *cacheTable
	forms     *formBudget
	encodings *encodingCache
	packer    *packer
	attrs     *attrSets
	limits    windowLimits

	// Progress and loading.
	barrier  *revisionBarrier
	revision revisionReader
	loader   *loader

	// from is the revision after which the watch began, and caches load at this revision or a later
	// one. It is 0 before the first watch, and after a watch has lost events, so that the next
	// watch has to begin at another revision.
	from atomic.Int64
	// compacted is the highest revision at which a compaction was seen; the key-value store has no
	// older states. Lists of older states fail even if the window still has them, so that a
	// continue token expires at the same time on busy and on idle servers.
	compacted atomic.Int64
	// dispatching is the revision of the batch that is being passed to caches, or that was passed
	// last.
	dispatching atomic.Int64
	missed      bool // a watch has lost events to a compaction; used by Run's goroutine only

	sealed chan struct{} // receives when a cache has an object that cannot be decrypted

	mu    sync.RWMutex
	watch kv.Watch // nil between watches
}

// NewBackend returns a Backend. Its stores serve once Run has been called.
func NewBackend(cfg BackendConfig) *Backend {
	root := strings.TrimSuffix(cfg.Root, "/") + "/"
	if cfg.Root == "" {
		root = defaultRoot + "/"
	}
	if cfg.FormBytes == 0 {
		cfg.FormBytes = defaultFormBytes
	}
	if cfg.Undecodable == nil {
		cfg.Undecodable = func(string) {}
	}
	if cfg.Recheck == nil {
		cfg.Recheck = func() bool { return false }
	}
	b := &Backend{
		kv: cfg.KV, outdated: cfg.Outdated, recheck: cfg.Recheck, admit: cfg.Admit, undecodable: cfg.Undecodable,
		root: root, clock: cfg.Clock, log: cfg.Log, sealed: make(chan struct{}, 1),
		caches:    &cacheTable{root: root, byPrefix: map[string]*prefixCaches{}},
		forms:     newFormBudget(cfg.FormBytes / 3),
		encodings: newEncodingCache(cfg.FormBytes / 3 * 2),
		packer:    newPacker(),
		attrs:     newAttrSets(),
		limits:    defaultLimits,
		barrier:   newRevisionBarrier(cfg.Clock),
	}
	if cfg.Window != 0 {
		b.limits.age = cfg.Window
	}
	b.loader = newLoader(b.barrier)
	b.revision.read = cfg.KV.Revision
	return b
}

// Run follows the key-value store and loads caches until ctx is done. It returns nil, after all its
// goroutines have ended.
func (b *Backend) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { b.runProgress(ctx) })
	wg.Go(func() { b.runHousekeeping(ctx) })
	wg.Go(func() { b.loader.run(ctx) })
	wg.Go(func() { b.runPacking(ctx) })
	wg.Go(func() { b.runRecovery(ctx) })
	defer b.closeAll()
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

// Ready returns nil while the backend follows the key-value store.
func (b *Backend) Ready() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.watch == nil {
		return errors.New(msgNotReady)
	}
	return nil
}

// follow opens the watch and dispatches its batches until an error. The watch begins where the last
// one ended, if possible.
func (b *Backend) follow(ctx context.Context) error {
	from, target := b.barrier.reached(), int64(0)
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
			b.from.Store(0) // the next watch begins elsewhere, and all caches are loaded again
		}
		if err != nil {
			return err
		}
		b.dispatch(batch)
	}
}

// origin returns the revision after which the watch is to begin, and the present revision.
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

// learnCompacted reads the revision up to which an API server has compacted the key-value store.
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

// Compacted records that the key-value store keeps no states before rev. Lists of an older state
// fail from now on. Calling it is optional: the backend also looks for compactions every 15
// seconds.
func (b *Backend) Compacted(rev int64) {
	for known := b.compacted.Load(); rev > known && !b.compacted.CompareAndSwap(known, rev); known = b.compacted.Load() {
	}
}

// position records that a new watch begins after a revision (the argument from), and resets all
// caches, because they have missed earlier events. The loader makes caches ready only after the
// watch has reached target, the present revision, so that no client takes a past state for the
// present one.
func (b *Backend) position(from, target int64) {
	b.from.Store(from)
	b.dispatching.Store(from)
	now := b.clock.Now()
	for _, c := range b.caches.all() {
		c.reset(from, now.Add(backlogKeep))
	}
	b.barrier.advance(from)
	b.loader.start(target)
}

func (b *Backend) setWatch(w kv.Watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = w
}

// dispatch passes each cache its events of a batch, and then advances the barrier. Within a
// revision, events are in key order, so a cache gets all its events of one revision in one call.
func (b *Backend) dispatch(batch kv.Batch) {
	b.dispatching.Store(batch.Revision)
	var p *prefixCaches
	first := 0
	for i := range batch.Events {
		next := b.caches.find(batch.Events[i].Key)
		if next != p {
			p.apply(batch.Events[first:i])
			p, first = next, i
		}
	}
	p.apply(batch.Events[first:])
	b.barrier.advance(batch.Revision)
}

// closeAll closes all caches and ends their watchers when the server stops.
func (b *Backend) closeAll() {
	for _, c := range b.caches.all() {
		c.close()
	}
}

// runHousekeeping removes old events of resources that do not change, and reads up to which
// revision the key-value store has been compacted.
func (b *Backend) runHousekeeping(ctx context.Context) {
	ticker := b.clock.NewTicker(housekeepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			for _, c := range b.caches.all() {
				c.trim()
			}
			if err := b.learnCompacted(ctx); err != nil && ctx.Err() == nil {
				b.log.Warn("Failed to read the revision up to which the history is compacted", "err", err)
			}
		}
	}
}

// sleep waits for d. It returns false if ctx ends first.
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
