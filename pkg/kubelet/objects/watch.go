// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/follow"
)

// item is one watched object.
type item struct {
	pods   map[types.UID]struct{} // guarded by Manager.mu
	synced <-chan struct{}        // closed after the first list, when it is clear whether the object exists
	// object returns the object, or nil if it does not exist.
	object func() runtime.Object
	// run watches the object until ctx ends, stop is called, or the object turns out to be
	// immutable.
	run  func(ctx context.Context)
	stop context.CancelFunc
}

func (m *Manager) newItem(ref Ref) *item {
	if ref.Kind == KindSecret {
		source := follow.Source(m.cfg.Client.CoreV1().Secrets(ref.Namespace), follow.Named(ref.Name), follow.Latest)
		return newItem(m, ref, source, func(s *v1.Secret) *bool { return s.Immutable })
	}
	source := follow.Source(m.cfg.Client.CoreV1().ConfigMaps(ref.Namespace), follow.Named(ref.Name), follow.Latest)
	return newItem(m, ref, source, func(c *v1.ConfigMap) *bool { return c.Immutable })
}

// newItem returns an item for an object whose Go type is A.
func newItem[A any, P interface {
	*A
	runtime.Object
	metav1.Object
}](m *Manager, ref Ref, source cache.ListerWatcher, immutable func(*A) *bool) *item {
	stopped, stop := context.WithCancel(context.Background())
	it := &item{pods: map[types.UID]struct{}{}, stop: stop}
	kept := follow.NewCache(follow.Config[A, A]{
		Source: source, Keep: func(o *A) *A { return o }, Clock: m.cfg.Clock, Log: m.cfg.Log,
		Changed: func(_ types.NamespacedName, old, current *A) {
			if current != nil && immutable(current) != nil && *immutable(current) {
				stop()
			}
			// A change is a different UID or resource version: an object can be deleted and created
			// again between two lists. The first list is no change, because readers wait for it.
			same := old != nil && current != nil && P(old).GetUID() == P(current).GetUID() &&
				P(old).GetResourceVersion() == P(current).GetResourceVersion()
			select {
			case <-it.synced:
				if !same {
					m.notify(ref)
				}
			default:
			}
		},
	})
	it.synced = kept.Synced()
	it.object = func() runtime.Object {
		if o := kept.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}); o != nil {
			return P(o)
		}
		return nil
	}
	it.run = func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		kept.Run(ctx)
	}
	return it
}
