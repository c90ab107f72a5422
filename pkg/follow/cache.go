// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
)

// Delays between attempts to list and watch. They grow slowly: after a short outage, a process is
// up to date again after about as much time as the outage lasted. After an attempt that lasted
// longer than resetAfter, the next delay is firstDelay again.
const (
	firstDelay  = 50 * time.Millisecond
	delayFactor = 1.5
	delayJitter = 0.5
	lastDelay   = 30 * time.Second
	// startDelay, plus at most half of it at random, is the longest delay until the first list is
	// complete. It is short, because a process that cannot start without the list should start soon
	// after the API server.
	startDelay = 2 * time.Second
	resetAfter = 2 * time.Minute
)

// quietFailures is how many consecutive failures are logged at debug level. Later ones are logged
// as warnings. A few failures are usual: for example, the authorizer of an API server may receive a
// new pod later than the kubelet does.
const quietFailures = 5

// Config configures a Cache of objects of type A. For each object, the cache keeps a value of type
// K.
type Config[A, K any] struct {
	// Source lists and watches the objects.
	Source cache.ListerWatcher
	// Keep converts an object to the value that the cache keeps. If it returns nil, the cache does not
	// keep the object. Managed fields are removed from the object before the call. The value may share
	// memory with the object.
	Keep func(*A) *K
	// Changed, if not nil, is called for each change, after the cache has it. old is nil for a new
	// object, and current is nil for a deleted one. When a list is repeated, Changed is called for all
	// objects, even for those that have not changed. If a watch was interrupted, current can be a new
	// object with the same name as old. There is one call at a time, and it must not block for long.
	Changed func(name types.NamespacedName, old, current *K)
	// If Versions is true, the cache records resourceVersions for AtLeast, at a small cost for each event.
	Versions bool
	Clock    clock.Clock
	Log      *slog.Logger
}

// Cache keeps one list of objects up to date. It is safe for concurrent use.
type Cache[A, K any] struct {
	cfg    Config[A, K]
	synced chan struct{}

	mu      sync.RWMutex
	kept    map[types.NamespacedName]*K
	version string // resourceVersion up to which the cache has all changes; "" before the first list
	// round is the context of the current list and watch, and of the delay after them. again ends them. Both
	// are nil before Run.
	round context.Context
	again context.CancelFunc
}

var (
	_ cache.ReflectorStore         = (*Cache[int, int])(nil)
	_ cache.TransformingStore      = (*Cache[int, int])(nil)
	_ cache.ResourceVersionUpdater = (*Cache[int, int])(nil)
)

// NewCache returns an empty cache. Run fills it.
func NewCache[A, K any](cfg Config[A, K]) *Cache[A, K] {
	return &Cache[A, K]{cfg: cfg, synced: make(chan struct{}), kept: map[types.NamespacedName]*K{}}
}

// Run lists and watches the source until ctx is done.
func (c *Cache[A, K]) Run(ctx context.Context) {
	kind := fmt.Sprintf("%T", new(A))
	until := contextClock{c.cfg.Clock, c.current, c.synced}
	backoff := wait.Backoff{Duration: firstDelay, Factor: delayFactor, Jitter: delayJitter, Cap: lastDelay, Steps: 1000}
	r := cache.NewReflectorWithOptions(c.cfg.Source, new(A), c, cache.ReflectorOptions{
		Name: kind, Clock: until, Backoff: &backoff,
	})
	failures := 0 // number of consecutive failures
	for delays := backoff; ctx.Err() == nil; {
		round, end := c.begin(ctx)
		began := until.Now()
		err := r.ListAndWatchWithContext(round)
		long := until.Since(began) > resetAfter
		if err == nil || long {
			failures = 0
		}
		if err != nil && round.Err() == nil {
			failures++
			level := slog.LevelDebug
			if failures > quietFailures {
				level = slog.LevelWarn
			}
			c.cfg.Log.Log(ctx, level, "Failed to watch", "type", kind, "err", err)
		}
		if long {
			delays = backoff
		}
		<-until.After(delays.Step())
		end()
	}
}

// begin begins a list and watch, which ends when end or Relist is called.
func (c *Cache[A, K]) begin(ctx context.Context) (round context.Context, end context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round, c.again = context.WithCancel(ctx)
	return c.round, c.again
}

// current returns the context of the current list and watch.
func (c *Cache[A, K]) current() context.Context {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.round
}

// Relist makes Run list the source again now, even if it waits after a failure. It does not wait for the
// list.
func (c *Cache[A, K]) Relist() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again != nil {
		c.again()
	}
}

// AtLeast reports whether the cache has all changes up to a resourceVersion, and Changed was called for
// them. It returns false if Config.Versions is false.
func (c *Cache[A, K]) AtLeast(version string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(c.version, version)
	return err == nil && order >= 0
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (c *Cache[A, K]) UpdateResourceVersion(version string) {
	if !c.cfg.Versions {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
}

// Synced returns a channel that is closed once the first list is complete and Changed has been
// called for all its objects.
func (c *Cache[A, K]) Synced() <-chan struct{} { return c.synced }

// Get returns the kept value of an object, or nil if the cache does not have the object.
func (c *Cache[A, K]) Get(name types.NamespacedName) *K {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.kept[name]
}

// All returns the kept values of all objects, by name. The caller may modify the map.
func (c *Cache[A, K]) All() map[types.NamespacedName]*K {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.kept)
}

// Len returns the number of objects that are kept.
func (c *Cache[A, K]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.kept)
}

// entry is the kept value of an object, with the object's name.
type entry[K any] struct {
	name types.NamespacedName
	kept *K
}

// convert converts an object to an entry. If obj is an entry already, convert returns it.
func (c *Cache[A, K]) convert(obj any) (entry[K], error) {
	if e, ok := obj.(entry[K]); ok {
		return e, nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return entry[K]{}, fmt.Errorf("object without metadata: %w", err)
	}
	e := entry[K]{name: types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}}
	o, ok := obj.(*A)
	if !ok {
		return e, fmt.Errorf("unexpected %T", obj)
	}
	m.SetManagedFields(nil)
	e.kept = c.cfg.Keep(o)
	return e, nil
}

// Transformer implements cache.TransformingStore. With it, the reflector converts the objects of a
// streamed list one by one as they arrive, instead of collecting the whole objects.
func (c *Cache[A, K]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return c.convert(obj) }
}

// Add implements cache.ReflectorStore.
func (c *Cache[A, K]) Add(obj any) error { return c.Update(obj) }

// Update implements cache.ReflectorStore.
func (c *Cache[A, K]) Update(obj any) error {
	e, err := c.convert(obj)
	if err != nil {
		return err
	}
	c.put(e)
	return nil
}

// Delete implements cache.ReflectorStore.
func (c *Cache[A, K]) Delete(obj any) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("object without metadata: %w", err)
	}
	c.put(entry[K]{name: types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}})
	return nil
}

// Replace implements cache.ReflectorStore. Objects that are not in the new list are removed.
func (c *Cache[A, K]) Replace(list []any, version string) error {
	gone := c.All()
	for _, obj := range list {
		e, err := c.convert(obj)
		if err != nil {
			return err
		}
		delete(gone, e.name)
		c.put(e)
	}
	for name := range gone {
		c.put(entry[K]{name: name})
	}
	c.UpdateResourceVersion(version)
	select {
	case <-c.synced:
	default:
		close(c.synced)
	}
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing, because no owner of a cache needs
// repeated calls of Changed.
func (c *Cache[A, K]) Resync() error { return nil }

func (c *Cache[A, K]) put(e entry[K]) {
	c.mu.Lock()
	old := c.kept[e.name]
	if e.kept == nil {
		delete(c.kept, e.name)
	} else {
		c.kept[e.name] = e.kept
	}
	c.mu.Unlock()
	if c.cfg.Changed != nil && (old != nil || e.kept != nil) {
		c.cfg.Changed(e.name, old, e.kept)
	}
}

// Wait waits until the first list of every cache is complete. If ctx is done earlier, it returns an
// error with the cause.
func Wait(ctx context.Context, caches ...interface{ Synced() <-chan struct{} }) error {
	for _, c := range caches {
		select {
		case <-ctx.Done():
			return fmt.Errorf("first list: %w", context.Cause(ctx))
		case <-c.Synced():
		}
	}
	return nil
}

// contextClock is a clock for the reflector's delays between attempts. It ends a delay early when
// the current context is done. Until the cache is synced, it limits delays to about startDelay. With another clock,
// a delay would not depend on it, and could last 45 s after a refused connection.
type contextClock struct {
	clock.Clock
	current func() context.Context
	synced  <-chan struct{}
}

func (c contextClock) After(d time.Duration) <-chan time.Time {
	select {
	case <-c.synced:
	default:
		d = min(d, wait.Jitter(startDelay, delayJitter))
	}
	out := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(c.current())
	timer := c.AfterFunc(d, cancel)
	context.AfterFunc(ctx, func() {
		timer.Stop()
		out <- c.Now()
	})
	return out
}
