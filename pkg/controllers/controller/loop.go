// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"keelson.dev/api/clock"
)

// Back-off of a key whose sync fails.
const (
	retryFirst = 5 * time.Millisecond
	retryMax   = 1000 * time.Second
	// conflictPause is how long a key at least waits that met a newer version,
	// conflictMax how long at most: a change that the cache shows has it synced earlier.
	conflictPause = 50 * time.Millisecond
	conflictMax   = 10 * time.Second
)

// Loop is a queue of keys and the workers that sync them. A key that is added
// while it is being synced is synced again afterwards; one whose sync fails is
// tried again later, and later each time.
type Loop struct {
	name    string
	queue   workqueue.TypedRateLimitingInterface[string]
	sync    func(ctx context.Context, key string) error
	workers int
	// conflicts is the back-off of keys that met newer versions. Those come many at a
	// time while a cache is behind, and are no failures.
	conflicts workqueue.TypedRateLimiter[string]
	clock     clock.Clock
	log       *slog.Logger

	mu   sync.Mutex
	pace map[string]pace
}

// NewLoop returns a loop that runs sync for keys.
func NewLoop(name string, c clock.Clock, log *slog.Logger, workers int, sync func(ctx context.Context, key string) error) *Loop {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax)
	return &Loop{
		name: name, sync: sync, workers: max(workers, 1), clock: c, log: log, pace: map[string]pace{},
		conflicts: workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, conflictMax),
		queue:     workqueue.NewTypedRateLimitingQueueWithConfig(limits, workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: c}),
	}
}

// Add has a key synced.
func (l *Loop) Add(key string) { l.queue.Add(key) }

// AddAfter has a key synced after d.
func (l *Loop) AddAfter(key string, d time.Duration) { l.queue.AddAfter(key, d) }

// A key is paced to be worked on for at most one part in share of the time,
// but not to wait for longer than maxPause.
const (
	share    = 10
	maxPause = 500 * time.Millisecond
)

// AddPaced is Add for a change that is likely to be followed by others of its
// kind: it is done at once if the key has rested for a few times as long as its
// last sync took, and else together with what comes until then. The busier the
// API server is, the more changes one write of a status shows.
func (l *Loop) AddPaced(key string) {
	l.mu.Lock()
	p := l.pace[key]
	if p.running {
		p.again = true
		l.pace[key] = p
		l.mu.Unlock()
		return
	}
	rest := p.until.Sub(l.clock.Now())
	if rest <= 0 {
		delete(l.pace, key)
	}
	l.mu.Unlock()
	if rest > 0 {
		l.queue.AddAfter(key, rest)
		return
	}
	l.queue.Add(key)
}

// pace is what is known of a key's rest.
type pace struct {
	// until: before then it is not synced for what is paced.
	until time.Time
	// running: it is being synced; again: something changed meanwhile.
	running, again bool
}

// begin remembers that a key is being synced.
func (l *Loop) begin(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace[key] = pace{running: true}
}

// end remembers how long a sync took that ends now.
func (l *Loop) end(key string, began time.Time) {
	now := l.clock.Now()
	rest := min(share*now.Sub(began), maxPause)
	l.mu.Lock()
	again := l.pace[key].again
	l.pace[key] = pace{until: now.Add(rest)}
	if len(l.pace) >= forgetFrom {
		maps.DeleteFunc(l.pace, func(_ string, p pace) bool { return !p.running && p.until.Before(now) })
	}
	l.mu.Unlock()
	if again {
		l.queue.AddAfter(key, rest)
	}
}

// forgetFrom is with how many keys it is looked for those that have rested.
const forgetFrom = 1024

// AddObject has the key of an object synced.
func (l *Loop) AddObject(obj any) { l.queue.Add(Key(obj)) }

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range l.workers {
		wg.Go(func() { l.work(ctx) })
	}
	<-ctx.Done()
	l.queue.ShutDown()
	wg.Wait()
	return nil
}

func (l *Loop) work(ctx context.Context) {
	for {
		key, stop := l.queue.Get()
		if stop {
			return
		}
		l.one(ctx, key)
	}
}

func (l *Loop) one(ctx context.Context, key string) {
	defer l.queue.Done(key)
	began := l.clock.Now()
	l.begin(key)
	err := l.guarded(ctx, key)
	l.end(key, began)
	switch {
	case err == nil:
		l.queue.Forget(key)
		l.conflicts.Forget(key)
		return
	case ctx.Err() != nil:
		return
	case apierrors.IsConflict(err):
		// Somebody was faster; the cache will show what he wrote, but hardly at once.
		l.log.Debug("sync met a newer version", "controller", l.name, "key", key, "error", err)
		l.queue.AddAfter(key, max(l.conflicts.When(key), conflictPause))
		return
	default:
		l.log.Warn("sync failed", "controller", l.name, "key", key, "error", err)
	}
	l.queue.AddRateLimited(key)
}

// guarded is sync; a panic in it is an error of that key, and does not end the
// work on all others.
func (l *Loop) guarded(ctx context.Context, key string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return l.sync(ctx, key)
}

// Key is an object's namespace/name.
func Key(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("controller: %T has no metadata", obj)) // a programming error
	}
	if m.GetNamespace() == "" {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}

// Keys are the keys of objects.
func Keys[T metav1.Object](objs []T) []string {
	keys := make([]string, 0, len(objs))
	for _, o := range objs {
		keys = append(keys, Key(o))
	}
	return keys
}

// Split takes a key apart.
func Split(key string) (namespace, name string) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		panic("controller: key " + key) // a programming error
	}
	return namespace, name
}

// OnChange has changed called for each change of the informer's objects: with
// no old object when one is new, with no new one when one is gone.
func OnChange[T any](informer cache.SharedIndexInformer, changed func(old, obj *T)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o.(*T)) },
		UpdateFunc: func(old, o any) { changed(old.(*T), o.(*T)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if t, ok := o.(*T); ok {
				changed(t, nil)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// OnlyStatus tells whether nothing of an object has changed that its controller acts
// upon: mostly that is the controller's own write of the status.
func OnlyStatus(old, obj metav1.Object) bool {
	return old.GetUID() == obj.GetUID() && old.GetGeneration() == obj.GetGeneration() &&
		old.GetDeletionTimestamp().Equal(obj.GetDeletionTimestamp())
}

// Either returns the new object, or the old one when it is gone.
func Either[T any](old, obj *T) *T {
	if obj != nil {
		return obj
	}
	return old
}
