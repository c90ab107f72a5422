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
	defaultFormBytes  = 64 << 20
	defaultWindow     = 75 * time.Second
	followRetry       = time.Second
	housekeepInterval = 15 * time.Second
)

// BackendConfig says what a Backend stands on.
type BackendConfig struct {
	KV kv.Store
	// Root is the path above all keys; "/registry" when empty.
	Root  string
	Clock clock.Clock
	Log   *slog.Logger
	// FormBytes bounds the memory of encodings and decoded objects that records
	// of all stores remember; 64 MiB when 0.
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
type Backend struct {
	kv     kv.Store
	root   string
	clock  clock.Clock
	log    *slog.Logger
	forms  *formBudget
	window time.Duration

	fresh    *freshness
	revision revisionReader

	// from is the revision the watch was opened after: caches load at it or later.
	from  atomic.Int64
	loads loadQueue

	mu     sync.RWMutex
	caches map[string]*cache // by "<prefix>/" below root
	depth  int               // most path segments of any prefix
	watch  kv.Watch          // the present one; nil between watches
}

// NewBackend returns a Backend, which serves once Run has been called.
func NewBackend(cfg BackendConfig) *Backend {
	b := &Backend{
		kv: cfg.KV, root: strings.TrimSuffix(cfg.Root, "/") + "/", clock: cfg.Clock, log: cfg.Log,
		window: cfg.Window, caches: map[string]*cache{}, loads: newLoadQueue(),
	}
	if cfg.Root == "" {
		b.root = defaultRoot + "/"
	}
	if b.window == 0 {
		b.window = defaultWindow
	}
	if cfg.FormBytes == 0 {
		cfg.FormBytes = defaultFormBytes
	}
	b.forms = newFormBudget(cfg.FormBytes)
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
	next := b.fresh.reached() + 1
	if b.from.Load() == 0 {
		rev, err := b.kv.Revision(ctx)
		if err != nil {
			return fmt.Errorf("revision: %w", err)
		}
		next = rev + 1
	}
	w, err := b.kv.Watch(ctx, b.root, next)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	if b.from.Load() == 0 {
		b.position(next - 1)
	}
	b.setWatch(w)
	defer b.setWatch(nil)
	for {
		batch, err := w.Next(ctx)
		if errors.Is(err, kv.ErrCompacted) {
			b.from.Store(0) // what was missed is gone: everything starts anew
		}
		if err != nil {
			return err
		}
		b.dispatch(batch)
	}
}

// position tells where a new watch starts, and has all caches load anew: what
// happened before it is not known to them.
func (b *Backend) position(rev int64) {
	b.from.Store(rev)
	b.mu.RLock()
	for _, c := range b.caches {
		c.reset()
	}
	b.mu.RUnlock()
	b.fresh.advance(rev)
	b.loads.open()
}

func (b *Backend) setWatch(w kv.Watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = w
}

// dispatch gives each cache its part of a batch, in order and at once, and then
// tells everybody how far we are.
func (b *Backend) dispatch(batch kv.Batch) {
	for i := 0; i < len(batch.Events); {
		c := b.cacheOf(batch.Events[i].Key)
		j := i + 1
		for j < len(batch.Events) && b.cacheOf(batch.Events[j].Key) == c {
			j++
		}
		// The events of one revision may not be seen one without the other; where
		// several resources alternate, only a lease's end puts them at one revision,
		// and those keys are of one resource.
		if c != nil {
			c.apply(batch.Events[i:j])
		}
		i = j
	}
	b.fresh.advance(batch.Revision)
}

// cacheOf finds the cache of a full key: that of the longest registered prefix.
func (b *Backend) cacheOf(key string) *cache {
	b.mu.RLock()
	defer b.mu.RUnlock()
	rel := strings.TrimPrefix(key, b.root)
	var found *cache
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

func (b *Backend) register(prefix string, c *cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caches[prefix] = c
	b.depth = max(b.depth, strings.Count(prefix, "/"))
}

func (b *Backend) unregister(prefix string, c *cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.caches[prefix] == c {
		delete(b.caches, prefix)
	}
}

// endAll ends all watchers when the server stops.
func (b *Backend) endAll() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, c := range b.caches {
		c.reset()
	}
}

// runHousekeeping drops events that have become old in resources where nothing happens.
func (b *Backend) runHousekeeping(ctx context.Context) {
	ticker := b.clock.NewTicker(housekeepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			b.mu.RLock()
			for _, c := range b.caches {
				c.trim()
			}
			b.mu.RUnlock()
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
