// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/kubelet/worker"
)

// apiCache holds the API objects that the kubelet watches.
type apiCache struct {
	factory  informers.SharedInformerFactory
	pods     cache.SharedIndexInformer // of this node
	services corelisters.ServiceLister
	classes  nodelisters.RuntimeClassLister
	drivers  storageinformers.CSIDriverInformer
	listed   atomic.Bool // all pods that the API binds to the node are known
}

var _ worker.Environment = (*apiCache)(nil)

func newAPICache(cfg Config) *apiCache {
	f := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(withoutManagedFields))
	return &apiCache{
		factory: f,
		pods: coreinformers.NewFilteredPodInformer(cfg.Client, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName).String()
			}),
		services: f.Core().V1().Services().Lister(),
		classes:  f.Node().V1().RuntimeClasses().Lister(),
		drivers:  f.Storage().V1().CSIDrivers(),
	}
}

// subscribe calls changed when storage drivers change.
func (c *apiCache) subscribe(changed func()) error {
	_, err := c.drivers.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("storage drivers: %w", err)
	}
	return nil
}

// updatePeriod returns how often to ask a storage driver how many volumes the node can take. Zero
// means never.
func (c *apiCache) updatePeriod(driver string) time.Duration {
	d, err := c.drivers.Lister().Get(driver)
	if err != nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// attaches reports whether a storage driver's volumes are attached to nodes, which is the default
// for drivers without a CSIDriver object.
func (c *apiCache) attaches(driver string) bool {
	d, err := c.drivers.Lister().Get(driver)
	return err != nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// withoutManagedFields drops managed fields, which are large and which the kubelet never reads.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// run starts the watches. It returns when it has passed on all pods that exist now; it passes on
// changes until ctx ends.
func (c *apiCache) run(ctx context.Context, pool withoutMirrors) error {
	if err := c.pods.SetTransform(withoutManagedFields); err != nil {
		return fmt.Errorf("pods of the node: %w", err)
	}
	c.factory.Start(ctx.Done())
	// A container's environment is made from these caches, so no container may start before them.
	for kind, ok := range c.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("cache of %v: %w", kind, context.Cause(ctx))
		}
	}
	handler, err := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { pool.Set(o.(*v1.Pod)) },
		UpdateFunc: func(old, o any) {
			if was := old.(*v1.Pod); was.UID != o.(*v1.Pod).UID {
				pool.remove(was)
			}
			pool.Set(o.(*v1.Pod))
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*v1.Pod); ok {
				pool.remove(pod)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("pods of the node: %w", err)
	}
	go c.pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return errors.Join(errors.New("pods of the node: not listed"), context.Cause(ctx))
	}
	c.listed.Store(true)
	return nil
}

// bound returns the pods that the API binds to the node, mirrors included, and reports whether all
// of them are known.
func (c *apiCache) bound() ([]*v1.Pod, bool) {
	list := c.pods.GetStore().List()
	out := make([]*v1.Pod, 0, len(list))
	for _, o := range list {
		out = append(out, o.(*v1.Pod))
	}
	return out, c.listed.Load()
}

// named returns a pod that the API binds to the node by its name, or nil.
func (c *apiCache) named(namespace, name string) *v1.Pod {
	o, found, err := c.pods.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	return o.(*v1.Pod)
}

// Services implements worker.Environment.
func (c *apiCache) Services(namespace string) ([]*v1.Service, error) {
	own, err := c.services.Services(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	if namespace == metav1.NamespaceDefault {
		return own, nil
	}
	common, err := c.services.Services(metav1.NamespaceDefault).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	return append(own, common...), nil
}

// RuntimeHandler implements worker.Environment.
func (c *apiCache) RuntimeHandler(class string) (string, error) {
	if class == "" {
		return "", nil
	}
	rc, err := c.classes.Get(class)
	if err != nil {
		return "", fmt.Errorf("failed to get runtimeclass: %w", err)
	}
	return rc.Handler, nil
}
