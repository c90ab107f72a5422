// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that ends is restarted at once. If that fails it is retried with delays that double. The
// first delay is short: a pod's objects are read as soon as the pod is bound, when the Node
// authorizer may not have seen the binding yet.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
	// watchFor is the minimum duration of a watch. The maximum is twice that.
	watchFor = 5 * time.Minute
)

// item is one watched object.
type item struct {
	ref     Ref
	pods    map[types.UID]struct{} // guarded by Manager.mu
	synced  chan struct{}          // closed when the object is known, or known not to exist
	stopped chan struct{}          // closed by stop, when no pod refers to the object any more

	mu  sync.Mutex
	obj runtime.Object // nil if the object does not exist
	rv  string         // resource version to watch from; empty to list first
}

func newItem(ref Ref) *item {
	return &item{ref: ref, pods: map[types.UID]struct{}{}, synced: make(chan struct{}), stopped: make(chan struct{})}
}

// stop ends the watch. It is called once, by the caller that removes the item from Manager.items.
func (it *item) stop() { close(it.stopped) }

func (it *item) object() runtime.Object {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.obj
}

// set stores the object and reports whether it has changed.
func (it *item) set(obj runtime.Object) (changed bool) {
	it.mu.Lock()
	defer it.mu.Unlock()
	old := it.obj
	it.obj = obj
	return revision(old) != revision(obj)
}

// revision identifies a version of an object. The UID is part of it, because an object may be
// deleted and created again with the same name.
func revision(obj runtime.Object) string {
	if obj == nil {
		return ""
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return string(m.GetUID()) + "/" + m.GetResourceVersion()
}

func immutable(obj runtime.Object) bool {
	switch o := obj.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}

// watch keeps the item up to date until it is stopped, ctx ends or the object turns out to be
// immutable.
func (m *Manager) watch(ctx context.Context, it *item) {
	ctx, cancel := context.WithCancel(ctx)
	var stopper sync.WaitGroup
	defer stopper.Wait()
	defer cancel()
	stopper.Go(func() {
		select {
		case <-it.stopped:
			cancel()
		case <-ctx.Done():
		}
	})

	retry := firstRetry
	for ctx.Err() == nil {
		err := m.watchOnce(ctx, it)
		if immutable(it.object()) || ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = firstRetry
			continue
		}
		m.cfg.Log.Debug("Watch of object ended", "kind", it.ref.Kind, "namespace", it.ref.Namespace, "name", it.ref.Name, "err", err)
		timer := m.cfg.Clock.NewTimer(retry + time.Duration(m.random()*float64(retry)))
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}
		retry = min(2*retry, lastRetry)
	}
}

// watchOnce lists if there is no version to watch from, and then follows one watch until it ends.
func (m *Manager) watchOnce(ctx context.Context, it *item) error {
	if it.rv == "" {
		if err := m.list(ctx, it); err != nil {
			return err
		}
		if immutable(it.object()) {
			return nil
		}
	}
	seconds := int64((1 + m.random()) * watchFor.Seconds())
	w, err := m.startWatch(ctx, it.ref, metav1.ListOptions{
		FieldSelector:       selectName(it.ref),
		ResourceVersion:     it.rv,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	})
	if err != nil {
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			it.rv = ""
		}
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := m.handle(it, e); err != nil || immutable(it.object()) {
				return err
			}
		}
	}
}

func (m *Manager) handle(it *item, e watch.Event) error {
	if e.Type == watch.Error {
		it.rv = "" // usually 410: events were lost
		return fmt.Errorf("watch: %w", apierrors.FromObject(e.Object))
	}
	o, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("watch event: %w", err)
	}
	it.rv = o.GetResourceVersion()
	var changed bool
	switch e.Type {
	case watch.Added, watch.Modified:
		changed = it.set(e.Object)
	case watch.Deleted:
		changed = it.set(nil)
	}
	if changed {
		m.notify(it.ref)
	}
	return nil
}

func (m *Manager) startWatch(ctx context.Context, ref Ref, o metav1.ListOptions) (watch.Interface, error) {
	if ref.Kind == KindSecret {
		return m.cfg.Client.CoreV1().Secrets(ref.Namespace).Watch(ctx, o)
	}
	return m.cfg.Client.CoreV1().ConfigMaps(ref.Namespace).Watch(ctx, o)
}

// list reads the present object. It lists by name instead of getting, because the watch needs the
// list's resource version.
func (m *Manager) list(ctx context.Context, it *item) error {
	o := metav1.ListOptions{FieldSelector: selectName(it.ref)}
	var found runtime.Object
	if it.ref.Kind == KindSecret {
		l, err := m.cfg.Client.CoreV1().Secrets(it.ref.Namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if len(l.Items) > 0 {
			found = &l.Items[0]
		}
		it.rv = l.ResourceVersion
	} else {
		l, err := m.cfg.Client.CoreV1().ConfigMaps(it.ref.Namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if len(l.Items) > 0 {
			found = &l.Items[0]
		}
		it.rv = l.ResourceVersion
	}
	changed := it.set(found)
	select {
	case <-it.synced: // closed already by an earlier list
		if changed {
			m.notify(it.ref)
		}
	default:
		close(it.synced)
	}
	return nil
}

func selectName(ref Ref) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()
}
