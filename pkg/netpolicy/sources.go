// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// sources are what the agent knows of the API. Their handlers only note names.
type sources struct {
	node                              string
	factory                           informers.SharedInformerFactory
	policies, pods, namespaces, nodes *source // the last three are nil until they are followed
	cluster                           clusterPolicies
	running                           sync.WaitGroup

	wake chan struct{} // capacity 1
	mu   sync.Mutex
	dirty
}

// source is one of them.
type source struct {
	cache.SharedIndexInformer
	told cache.ResourceEventHandlerRegistration
}

// dirty is what has changed since the owner of the state last looked; guarded by sources.mu.
type dirty struct {
	pods, policies             map[types.NamespacedName]bool
	namespaces, cluster, nodes map[string]bool
}

func newDirty() dirty {
	return dirty{map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

func newSources(node string, client kubernetes.Interface, custom dynamic.Interface, log *slog.Logger) (*sources, error) {
	f := informers.NewSharedInformerFactory(client, 0)
	s := &sources{node: node, factory: f, wake: make(chan struct{}, 1), dirty: newDirty()}
	s.cluster = clusterPolicies{client: custom, log: log, note: func(d *dirty, n types.NamespacedName) { d.cluster[n.Name] = true }}
	var err error
	s.policies, err = s.follow(f.Networking().V1().NetworkPolicies().Informer(), slim, func(d *dirty, n types.NamespacedName) { d.policies[n] = true })
	return s, err
}

// begin follows policies, until ctx ends, and returns when it has what there is.
func (s *sources) begin(ctx context.Context) error {
	if err := s.cluster.adjust(ctx, s); err != nil {
		return err
	}
	followed := []*source{s.policies}
	if s.cluster.definition != nil {
		followed = append(followed, s.cluster.definition)
	}
	if err := s.start(ctx, followed...); err != nil {
		return err
	}
	if err := s.cluster.adjust(ctx, s); err != nil || s.cluster.policies == nil {
		return err
	}
	return s.start(ctx, s.cluster.policies)
}

// end waits for what was begun; its context has ended.
func (s *sources) end() {
	s.factory.Shutdown()
	s.running.Wait()
}

// followPods begins with the pods and namespaces, which nobody needs as long as there is no policy.
func (s *sources) followPods(ctx context.Context) error {
	var errs [2]error
	core := s.factory.Core().V1()
	s.pods, errs[0] = s.follow(core.Pods().Informer(), slimPod, func(d *dirty, n types.NamespacedName) { d.pods[n] = true })
	s.namespaces, errs[1] = s.follow(core.Namespaces().Informer(), slim, func(d *dirty, n types.NamespacedName) { d.namespaces[n.Name] = true })
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return s.start(ctx, s.pods, s.namespaces)
}

// followNodes begins with the nodes, which nobody needs as long as no policy names any.
func (s *sources) followNodes(ctx context.Context) error {
	var err error
	s.nodes, err = s.follow(s.factory.Core().V1().Nodes().Informer(), slimNode, func(d *dirty, n types.NamespacedName) { d.nodes[n.Name] = true })
	if err != nil {
		return err
	}
	return s.start(ctx, s.nodes)
}

// start runs the informers that there are, until ctx ends, and returns when those given have told what
// there is.
func (s *sources) start(ctx context.Context, followed ...*source) error {
	s.factory.Start(ctx.Done())
	for _, f := range followed {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.told.HasSyncedChecker().Done():
		}
	}
	return nil
}

func (s *sources) follow(i cache.SharedIndexInformer, transform cache.TransformFunc, note func(*dirty, types.NamespacedName)) (*source, error) {
	if err := i.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("informer: %w", err)
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
	told, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: f, DeleteFunc: f, UpdateFunc: func(_, o any) { f(o) }})
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	return &source{i, told}, nil
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

// slimNode keeps of a node what NodeOf reads.
func slimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, ResourceVersion: n.ResourceVersion},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}, nil
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
func (s *sources) update(ctx context.Context, x *Index) error {
	d := s.take()
	for name := range d.cluster {
		p := s.cluster.get(name)
		x.SetClusterPolicy(name, p)
		if p != nil && p.nodes && s.nodes == nil {
			if err := s.followNodes(ctx); err != nil {
				return fmt.Errorf("first list of nodes: %w", err)
			}
			for _, key := range s.nodes.GetStore().ListKeys() {
				s.updateNode(x, key)
			}
		}
	}
	for name := range d.nodes {
		s.updateNode(x, name)
	}
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
	return nil
}

func (s *sources) updateNode(x *Index, name string) {
	n, ok := lookup[corev1.Node](s.nodes, name)
	if !ok {
		x.SetNode(name, nil)
		return
	}
	x.SetNode(name, NodeOf(n))
}

// orEmpty are labels that are there, though there may be none.
func orEmpty(l labels.Set) labels.Set {
	if l == nil {
		return labels.Set{}
	}
	return l
}
