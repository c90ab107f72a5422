// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	"keelson.dev/keelson/pkg/kubelet/source"
	"keelson.dev/keelson/pkg/kubelet/static"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// sources are what the kubelet watches in the API.
type sources struct {
	factory  informers.SharedInformerFactory
	pods     cache.SharedIndexInformer // of this node
	static   *static.Manager           // nil without files
	services corelisters.ServiceLister
	classes  nodelisters.RuntimeClassLister
	drivers  storageinformers.CSIDriverInformer
	listed   atomic.Bool // all pods that the API binds to the node are known
}

func newSources(cfg Config) *sources {
	f := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(withoutManagedFields))
	return &sources{
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

// updatePeriod is how often a storage driver wants to be asked how many volumes the node takes; zero: never.
func (s *sources) updatePeriod(driver string) time.Duration {
	d, err := s.drivers.Lister().Get(driver)
	if err != nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// attaches tells whether a storage driver's volumes are attached to nodes. Those of one without a CSIDriver are.
func (s *sources) attaches(driver string) bool {
	d, err := s.drivers.Lister().Get(driver)
	return err != nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// onDrivers calls f when storage drivers have changed.
func (s *sources) onDrivers(f func()) error {
	_, err := s.drivers.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f() }, UpdateFunc: func(any, any) { f() }, DeleteFunc: func(any) { f() },
	})
	if err != nil {
		return fmt.Errorf("storage drivers: %w", err)
	}
	return nil
}

// withoutManagedFields drops what is large and never read.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// run starts the watches and returns when everything there was has been handed
// to the pool.
func (s *sources) run(ctx context.Context, all *worker.Pool) error {
	pool := mirrorless{all, s.static}
	if err := s.pods.SetTransform(withoutManagedFields); err != nil {
		return fmt.Errorf("pods of the node: %w", err)
	}
	s.factory.Start(ctx.Done())
	// Containers are not started before what their environment is made from is known.
	for kind, ok := range s.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("cache of %v: %w", kind, context.Cause(ctx))
		}
	}
	handler, err := s.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { pool.Set(o.(*v1.Pod)) },
		UpdateFunc: func(old, o any) {
			if was := old.(*v1.Pod); was.UID != o.(*v1.Pod).UID {
				pool.Remove(was)
			}
			pool.Set(o.(*v1.Pod))
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*v1.Pod); ok {
				pool.Remove(pod)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("pods of the node: %w", err)
	}
	go s.pods.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return errors.Join(errors.New("pods of the node: not listed"), context.Cause(ctx))
	}
	s.listed.Store(true)
	pool.changed()
	return nil
}

// mirrorless hands on all pods but mirrors: those are for the manager of what they show.
type mirrorless struct {
	pool   *worker.Pool
	static *static.Manager
}

func (m mirrorless) Set(pod *v1.Pod) {
	if source.Mirror(pod) {
		m.changed()
		return
	}
	m.pool.Set(pod)
}

func (m mirrorless) Remove(pod *v1.Pod) {
	if source.Mirror(pod) {
		m.changed()
		return
	}
	m.pool.Remove(pod.UID)
}

func (m mirrorless) changed() {
	if m.static != nil {
		m.static.Poke()
	}
}

// bound are the pods that the API binds to the node, mirrors among them, and whether all of them are known.
func (s *sources) bound() ([]*v1.Pod, bool) {
	list := s.pods.GetStore().List()
	out := make([]*v1.Pod, 0, len(list))
	for _, o := range list {
		out = append(out, o.(*v1.Pod))
	}
	return out, s.listed.Load()
}

// all are the node's pods, as the API last showed them and as the files have them.
func (s *sources) all() []*v1.Pod {
	list, _ := s.bound()
	list = slices.DeleteFunc(list, source.Mirror)
	if s.static != nil {
		list = append(list, s.static.Pods()...)
	}
	return list
}

// named is a pod of the node by its name, or nil.
func (s *sources) named(namespace, name string) *v1.Pod {
	o, found, err := s.pods.GetStore().GetByKey(namespace + "/" + name)
	if err == nil && found && !source.Mirror(o.(*v1.Pod)) {
		return o.(*v1.Pod)
	}
	if s.static != nil {
		for _, pod := range s.static.Pods() {
			if pod.Namespace == namespace && pod.Name == name {
				return pod
			}
		}
	}
	return nil
}

// servicesFor are the services that a container in the namespace gets variables of.
func (s *sources) servicesFor(namespace string) ([]*v1.Service, error) {
	own, err := s.services.Services(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	if namespace == metav1.NamespaceDefault {
		return own, nil
	}
	common, err := s.services.Services(metav1.NamespaceDefault).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	return append(own, common...), nil
}

func (s *sources) runtimeHandler(class string) (string, error) {
	if class == "" {
		return "", nil
	}
	rc, err := s.classes.Get(class)
	if err != nil {
		return "", fmt.Errorf("failed to get runtimeclass: %w", err)
	}
	return rc.Handler, nil
}
