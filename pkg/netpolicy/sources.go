// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
)

// sources contains the caches of all API objects that the agent reads. Each change is noted in
// changes.
type sources struct {
	clock   clock.Clock
	log     *slog.Logger
	changes *follow.Changes[dirty]
	running sync.WaitGroup

	policies *follow.Cache[networkingv1.NetworkPolicy, policy]
	cluster  clusterPolicies
	// pods and namespaces are watched as soon as the cluster has a policy, and nodes as soon as a
	// policy selects nodes.
	pods         *follow.Cache[corev1.Pod, Pod]
	namespaces   *follow.Cache[corev1.Namespace, labels.Set]
	nodes        *follow.Cache[corev1.Node, Node]
	followsNodes bool
}

// dirty contains the objects that have changed since the index was updated. A nil value means that
// the object was deleted.
type dirty struct {
	pods       map[types.NamespacedName]*Pod
	policies   map[types.NamespacedName]*policy
	namespaces map[string]labels.Set
	cluster    map[string]*clusterPolicy
	nodes      map[string]*Node
}

func newDirty() dirty {
	return dirty{
		map[types.NamespacedName]*Pod{}, map[types.NamespacedName]*policy{},
		map[string]labels.Set{}, map[string]*clusterPolicy{}, map[string]*Node{},
	}
}

func newSources(node string, client kubernetes.Interface, custom dynamic.Interface, c clock.Clock,
	log *slog.Logger) *sources {
	s := &sources{clock: c, log: log, changes: follow.NewChanges(newDirty),
		cluster: clusterPolicies{client: custom, log: log}}
	s.policies = newCache(s, follow.Config[networkingv1.NetworkPolicy, policy]{
		Source: follow.Source(client.NetworkingV1().NetworkPolicies("")), Keep: compile,
	}, func(d *dirty, name types.NamespacedName, p *policy) { d.policies[name] = p })
	s.pods = newCache(s, follow.Config[corev1.Pod, Pod]{
		Source: follow.Source(client.CoreV1().Pods("")), Keep: func(p *corev1.Pod) *Pod { return PodOf(p, node) },
	}, func(d *dirty, name types.NamespacedName, p *Pod) { d.pods[name] = p })
	s.namespaces = newCache(s, follow.Config[corev1.Namespace, labels.Set]{
		Source: follow.Source(client.CoreV1().Namespaces()), Keep: labelsOf,
	}, func(d *dirty, name types.NamespacedName, l *labels.Set) {
		d.namespaces[name.Name] = nil
		if l != nil {
			d.namespaces[name.Name] = *l
		}
	})
	s.nodes = newCache(s, follow.Config[corev1.Node, Node]{
		Source: follow.Source(client.CoreV1().Nodes()), Keep: NodeOf,
	}, func(d *dirty, name types.NamespacedName, n *Node) { d.nodes[name.Name] = n })
	return s
}

// newCache returns a cache that calls note with each change.
func newCache[A, K any](s *sources, cfg follow.Config[A, K],
	note func(*dirty, types.NamespacedName, *K)) *follow.Cache[A, K] {
	cfg.Clock, cfg.Log = s.clock, s.log
	cfg.Changed = func(name types.NamespacedName, _, current *K) {
		s.changes.Note(func(d *dirty) { note(d, name, current) })
	}
	return follow.NewCache(cfg)
}

// labelsOf returns the labels of a namespace. The set is not nil, even if the namespace has no
// labels.
func labelsOf(ns *corev1.Namespace) *labels.Set {
	set := labels.Set{}
	if ns.Labels != nil {
		set = ns.Labels
	}
	return &set
}

// followed is a cache of API objects of any kind.
type followed interface {
	Run(ctx context.Context)
	Synced() <-chan struct{}
}

// start runs caches until ctx ends. It returns when they are complete.
func (s *sources) start(ctx context.Context, caches ...followed) error {
	for _, c := range caches {
		s.running.Go(func() { c.Run(ctx) })
	}
	for _, c := range caches {
		if err := follow.Wait(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// begin starts to watch all policies, until ctx ends. It returns when their caches are complete.
func (s *sources) begin(ctx context.Context) error {
	if err := s.start(ctx, s.policies); err != nil {
		return err
	}
	s.cluster.adjust(ctx, s)
	if s.cluster.definition != nil {
		if err := follow.Wait(ctx, s.cluster.definition); err != nil {
			return err
		}
	}
	s.cluster.adjust(ctx, s)
	if s.cluster.policies != nil {
		return follow.Wait(ctx, s.cluster.policies)
	}
	return nil
}

// end waits until the goroutines of all caches have ended. Their context must have ended before.
func (s *sources) end() { s.running.Wait() }

// update passes the changed objects to an index.
func (s *sources) update(ctx context.Context, x *Index) error {
	d := s.changes.Take()
	for name, p := range d.cluster {
		x.SetClusterPolicy(name, p)
		if p != nil && p.nodes && !s.followsNodes {
			if err := s.start(ctx, s.nodes); err != nil {
				return fmt.Errorf("nodes: %w", err)
			}
			s.followsNodes = true
			for name, n := range s.nodes.All() {
				x.SetNode(name.Name, n)
			}
		}
	}
	for name, n := range d.nodes {
		x.SetNode(name, n)
	}
	for name, set := range d.namespaces {
		x.SetNamespace(name, set)
	}
	for name, p := range d.policies {
		x.SetPolicy(name, p)
	}
	for name, p := range d.pods {
		x.SetPod(name, p)
	}
	return nil
}
