// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// sources are what the agent knows of the API. Their handlers only note names.
type sources struct {
	node                       string
	factory                    informers.SharedInformerFactory
	pods, namespaces, policies cache.SharedIndexInformer

	wake chan struct{} // capacity 1
	mu   sync.Mutex
	dirty
}

// dirty is what has changed since the owner of the state last looked; guarded by sources.mu.
type dirty struct {
	pods, policies map[types.NamespacedName]bool
	namespaces     map[string]bool
}

func newDirty() dirty {
	return dirty{map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}, map[string]bool{}}
}

func newSources(node string, client kubernetes.Interface) (*sources, error) {
	f := informers.NewSharedInformerFactory(client, 0)
	s := &sources{
		node: node, factory: f, wake: make(chan struct{}, 1), dirty: newDirty(),
		policies: f.Networking().V1().NetworkPolicies().Informer(),
	}
	return s, s.follow(s.policies, slim, func(d *dirty, n types.NamespacedName) { d.policies[n] = true })
}

// followPods begins with the pods and namespaces, which nobody needs as long as there is no policy.
func (s *sources) followPods(ctx context.Context) error {
	s.pods, s.namespaces = s.factory.Core().V1().Pods().Informer(), s.factory.Core().V1().Namespaces().Informer()
	if err := s.follow(s.pods, slimPod, func(d *dirty, n types.NamespacedName) { d.pods[n] = true }); err != nil {
		return err
	}
	if err := s.follow(s.namespaces, slim, func(d *dirty, n types.NamespacedName) { d.namespaces[n.Name] = true }); err != nil {
		return err
	}
	return s.start(ctx)
}

// start runs the informers that there are, until ctx ends, and returns when they have what
// there is.
func (s *sources) start(ctx context.Context) error {
	s.factory.Start(ctx.Done())
	for _, synced := range s.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return ctx.Err()
		}
	}
	return nil
}

func (s *sources) follow(i cache.SharedIndexInformer, transform cache.TransformFunc, note func(*dirty, types.NamespacedName)) error {
	if err := i.SetTransform(transform); err != nil {
		return fmt.Errorf("informer: %w", err)
	}
	f := func(o any) {
		key, err := cache.DeletionHandlingObjectToName(o)
		if err != nil {
			return
		}
		s.mu.Lock()
		note(&s.dirty, types.NamespacedName(key.AsNamespacedName()))
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default: // it has not taken the last ones yet
		}
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: f, DeleteFunc: f, UpdateFunc: func(_, o any) { f(o) }})
	if err != nil {
		return fmt.Errorf("informer: %w", err)
	}
	return nil
}

// take returns the changes and forgets them.
func (s *sources) take() dirty {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.dirty
	s.dirty = newDirty()
	return out
}

// slim drops what nothing here reads.
func slim(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
	}
	return o, nil
}

// slimPod keeps of a pod what PodOf reads: there may be very many.
func slimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, ResourceVersion: p.ResourceVersion},
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
	named := func(list []corev1.Container) []corev1.Container {
		var out []corev1.Container
		for _, c := range list {
			for _, port := range c.Ports {
				if port.Name != "" {
					out = append(out, corev1.Container{Ports: []corev1.ContainerPort{port}})
				}
			}
		}
		return out
	}
	out.Spec.InitContainers, out.Spec.Containers = named(p.Spec.InitContainers), named(p.Spec.Containers)
	return out, nil
}

func lookup[T any](i cache.SharedIndexInformer, key string) (*T, bool) {
	o, ok, err := i.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil, false
	}
	v, ok := any(o).(*T)
	return v, ok
}

// update brings an index up to date with what has changed.
func (s *sources) update(x *Index, d dirty) {
	for name := range d.namespaces {
		ns, ok := lookup[corev1.Namespace](s.namespaces, name)
		if !ok {
			x.SetNamespace(name, nil)
			continue
		}
		x.SetNamespace(name, orEmpty(ns.Labels))
	}
	for name := range d.policies {
		np, ok := lookup[networkingv1.NetworkPolicy](s.policies, name.String())
		if !ok {
			x.SetPolicy(name, nil)
			continue
		}
		x.SetPolicy(name, compile(np))
	}
	for name := range d.pods {
		p, ok := lookup[corev1.Pod](s.pods, name.String())
		if !ok {
			x.SetPod(name, nil)
			continue
		}
		x.SetPod(name, PodOf(p, s.node))
	}
}

// orEmpty are labels that are there, though there may be none.
func orEmpty(l labels.Set) labels.Set {
	if l == nil {
		return labels.Set{}
	}
	return l
}
