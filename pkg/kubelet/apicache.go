// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// apiCache watches the API objects that the kubelet needs and caches them.
type apiCache struct {
	factory  informers.SharedInformerFactory
	pods     *follow.Cache[v1.Pod, v1.Pod] // the pods that the API binds to this node
	services corelisters.ServiceLister
	classes  nodelisters.RuntimeClassLister
	drivers  storageinformers.CSIDriverInformer
	changed  func(old, current *v1.Pod) // called for changed pods; run sets it
	// await waits until the API server has pods that are at least as new as a resourceVersion. It fails if
	// that takes long.
	await func(ctx context.Context, version string) error
}

var _ worker.Environment = (*apiCache)(nil)

func newAPICache(cfg Config) *apiCache {
	f := follow.NewInformers(cfg.Client, 0)
	c := &apiCache{
		factory:  f,
		services: f.Core().V1().Services().Lister(),
		classes:  f.Node().V1().RuntimeClasses().Lister(),
		drivers:  f.Storage().V1().CSIDrivers(),
		changed:  func(*v1.Pod, *v1.Pod) {},
	}
	onNode := fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName).String()
	c.await = func(ctx context.Context, version string) error {
		_, err := cfg.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: onNode, Limit: 1,
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		return err
	}
	c.pods = follow.NewCache(follow.Config[v1.Pod, v1.Pod]{
		Versions: true,
		Source:   follow.Source(cfg.Client.CoreV1().Pods(metav1.NamespaceAll), follow.Fields(onNode)),
		Keep:     func(pod *v1.Pod) *v1.Pod { return pod },
		Changed:  func(_ types.NamespacedName, old, current *v1.Pod) { c.changed(old, current) },
		Clock:    cfg.Clock, Log: cfg.Log,
	})
	return c
}

// subscribe registers a function that is called when a CSIDriver object changes.
func (c *apiCache) subscribe(changed func()) error {
	_, err := c.drivers.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("storage drivers: %w", err)
	}
	return nil
}

// updatePeriod returns how often the kubelet asks a storage driver how many of the driver's volumes
// can be attached to the node. Zero means never.
func (c *apiCache) updatePeriod(driver string) time.Duration {
	d, err := c.drivers.Lister().Get(driver)
	if err != nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// attaches reports whether a storage driver's volumes must be attached to the node before they are
// mounted. They must be for drivers without a CSIDriver object.
func (c *apiCache) attaches(driver string) bool {
	d, err := c.drivers.Lister().Get(driver)
	return err != nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// run starts the watches and returns after it has passed all existing pods to the pool. From then
// until ctx ends, a goroutine passes changes of pods to the pool.
func (c *apiCache) run(ctx context.Context, pool withoutMirrors) error {
	c.factory.StartWithContext(ctx)
	// The environment of a container includes the Services in this cache, so no container may start
	// before the cache has loaded.
	if err := c.factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return fmt.Errorf("objects for pods' environments: %w", err)
	}
	c.changed = pool.change
	go c.pods.Run(ctx)
	return follow.Wait(ctx, c.pods)
}

// list lists the node's pods again, from an API server that has them as of a resourceVersion.
func (c *apiCache) list(ctx context.Context, version string) error {
	if err := c.await(ctx, version); err != nil {
		return fmt.Errorf("pods as of %s: %w", version, err)
	}
	c.pods.Relist()
	return nil
}

// listed reports whether the cache has loaded all pods that the API binds to the node.
func (c *apiCache) listed() bool {
	select {
	case <-c.pods.Synced():
		return true
	default:
		return false
	}
}

// bound returns the cached pods that the API binds to the node, including mirror pods of static
// pods. The second result reports whether the cache has loaded all of them.
func (c *apiCache) bound() ([]*v1.Pod, bool) {
	all := c.listed()
	return slices.Collect(maps.Values(c.pods.All())), all
}

// named returns the pod with this namespace and name if the API binds it to the node, or nil.
func (c *apiCache) named(namespace, name string) *v1.Pod {
	return c.pods.Get(types.NamespacedName{Namespace: namespace, Name: name})
}

// Services implements worker.Environment. It returns the Services of the namespace and of the
// namespace default, whose addresses containers get as environment variables.
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

// RuntimeHandler implements worker.Environment. It returns the runtime handler of a RuntimeClass,
// or "", the default handler, if class is empty.
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
