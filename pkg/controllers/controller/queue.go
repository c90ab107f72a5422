// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"

	"keelson.dev/api/clock"
)

const (
	// retryFirst and retryMax are the first and the longest delay of the exponential back-off of a
	// key whose sync failed.
	retryFirst = 5 * time.Millisecond
	retryMax   = 1000 * time.Second
	// conflictPause and conflictMax are the shortest and the longest delay after a sync that failed
	// with a Conflict error. When the cache receives the newer version of the object, its event
	// usually queues the key earlier.
	conflictPause = 50 * time.Millisecond
	conflictMax   = 10 * time.Second

	// pauseFactor and maxPause determine how long AddPaced delays a key after a sync: the duration
	// of that sync times pauseFactor, at most maxPause.
	pauseFactor = 10
	maxPause    = 500 * time.Millisecond
	// pruneSize is the number of stored pauses from which on markDone deletes the expired ones.
	pruneSize = 1024
	// terminatingDelay is how long AddForStatus delays a key in a namespace that is being deleted.
	terminatingDelay = 10 * time.Second
)

// Queue is a queue of keys with workers that sync them. If a key is added while it is being synced,
// it is synced again afterwards. A key whose sync fails is retried with exponential back-off.
type Queue struct {
	name    string
	items   workqueue.TypedRateLimitingInterface[string]
	sync    func(ctx context.Context, key string) error
	workers int
	// conflicts is the back-off after Conflict errors. It is separate from the back-off after other
	// errors, because a cache that lags causes many conflicts in a row.
	conflicts workqueue.TypedRateLimiter[string]
	clock     clock.Clock
	log       *slog.Logger

	mu     sync.Mutex
	pauses map[string]pause // by key; has an entry for each key that is being synced or was synced recently
}

// pause is the state of one key for AddPaced.
type pause struct {
	// until is the end of the pause: AddPaced delays the key until then.
	until time.Time
	// running is true while the key is being synced. changed is true if AddPaced was called during
	// that sync.
	running, changed bool
}

// ErrNotYet is for errors of a sync that are normal, because another program has not done its part yet. The key is
// retried as after other errors, but without a warning in the log.
var ErrNotYet = errors.New("not yet")

// NewQueue returns a queue that calls sync for each key. It has the given number of workers, but at
// least one.
func NewQueue(
	name string, c clock.Clock, log *slog.Logger, workers int, sync func(ctx context.Context, key string) error,
) *Queue {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax)
	return &Queue{
		name: name, sync: sync, workers: max(workers, 1), clock: c, log: log, pauses: map[string]pause{},
		conflicts: workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, conflictMax),
		items: workqueue.NewTypedRateLimitingQueueWithConfig(limits,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName(name), Clock: c}),
	}
}

// Add queues a key.
func (q *Queue) Add(key string) { q.items.Add(key) }

// AddAfter queues a key after the duration d.
func (q *Queue) AddAfter(key string, d time.Duration) { q.items.AddAfter(key, d) }

// AddObject queues the key of an object.
func (q *Queue) AddObject(obj any) { q.items.Add(Key(obj)) }

// AddPaced queues a key whose object is likely to change again soon. The first change is synced at
// once. After each sync follows a pause of pauseFactor times the duration of the sync, at most
// maxPause. All changes during a sync and the pause after it are synced together. So a busy API
// server gets fewer status writes, and each write covers more changes.
func (q *Queue) AddPaced(key string) {
	q.mu.Lock()
	p := q.pauses[key]
	if p.running {
		p.changed = true
		q.pauses[key] = p
		q.mu.Unlock()
		return
	}
	rest := p.until.Sub(q.clock.Now())
	if rest <= 0 {
		delete(q.pauses, key)
	}
	q.mu.Unlock()
	if rest > 0 {
		q.items.AddAfter(key, rest)
		return
	}
	q.items.Add(key)
}

// AddForStatus is like AddPaced, for a change that affects only the status. In a namespace that is
// being deleted it delays the key by terminatingDelay, because there every object changes several
// times, and most objects are deleted before a client reads their status.
func (q *Queue) AddForStatus(namespaces corelisters.NamespaceLister, key string) {
	if namespace, _ := SplitKey(key); NamespaceTerminating(namespaces, namespace) {
		q.AddAfter(key, terminatingDelay)
		return
	}
	q.AddPaced(key)
}

// NamespaceTerminating reports whether a namespace is being deleted.
func NamespaceTerminating(namespaces corelisters.NamespaceLister, namespace string) bool {
	ns, err := namespaces.Get(namespace)
	return err == nil && ns.DeletionTimestamp != nil
}

// markRunning records that a sync of key starts.
func (q *Queue) markRunning(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pauses[key] = pause{running: true}
}

// markDone records that a sync that started at the time began has ended, and starts the pause after
// it. If AddPaced was called during the sync, markDone queues the key for the end of the pause.
func (q *Queue) markDone(key string, began time.Time) {
	now := q.clock.Now()
	rest := min(pauseFactor*now.Sub(began), maxPause)
	q.mu.Lock()
	changed := q.pauses[key].changed
	q.pauses[key] = pause{until: now.Add(rest)}
	if len(q.pauses) >= pruneSize {
		maps.DeleteFunc(q.pauses, func(_ string, p pause) bool { return !p.running && p.until.Before(now) })
	}
	q.mu.Unlock()
	if changed {
		q.items.AddAfter(key, rest)
	}
}

// Run syncs the queued keys until ctx ends. It returns when all workers have ended.
func (q *Queue) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range q.workers {
		wg.Go(func() { q.runWorker(ctx) })
	}
	<-ctx.Done()
	q.items.ShutDown()
	wg.Wait()
	return nil
}

func (q *Queue) runWorker(ctx context.Context) {
	for {
		key, stop := q.items.Get()
		if stop {
			return
		}
		q.process(ctx, key)
	}
}

func (q *Queue) process(ctx context.Context, key string) {
	defer q.items.Done(key)
	began := q.clock.Now()
	q.markRunning(key)
	err := q.syncRecovering(ctx, key)
	q.markDone(key, began)
	switch {
	case err == nil:
		q.items.Forget(key)
		q.conflicts.Forget(key)
		return
	case ctx.Err() != nil:
		return
	case apierrors.IsConflict(err):
		// Another client changed the object first. The cache may not show the change yet.
		q.log.Debug("Sync failed because another client wrote first, retrying",
			"controller", q.name, "key", key, "err", err)
		q.items.AddAfter(key, max(q.conflicts.When(key), conflictPause))
		return
	case errors.Is(err, ErrNotYet):
		q.log.Debug("Sync waits, retrying", "controller", q.name, "key", key, "err", err)
	default:
		q.log.Warn("Sync failed, retrying", "controller", q.name, "key", key, "err", err)
	}
	q.items.AddRateLimited(key)
}

// syncRecovering calls sync. If sync panics, it returns the panic as an error, so that one broken
// object does not end the process.
func (q *Queue) syncRecovering(ctx context.Context, key string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return q.sync(ctx, key)
}

// RunEvery calls f every period until ctx ends. If period is 0 or negative, it never calls f and
// only waits.
func RunEvery(ctx context.Context, c clock.Clock, period time.Duration, f func(context.Context)) {
	if period <= 0 {
		<-ctx.Done()
		return
	}
	t := c.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			f(ctx)
		}
	}
}
