// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
)

// cidrWait is how long the start waits for ServiceCIDRs, because some API servers do not serve
// them.
const cidrWait = 5 * time.Second

// sources contains the caches of all API objects that the proxy reads. Each change is noted in
// dirty.
type sources struct {
	nodeName string
	clock    clock.Clock
	objects  *objects
	nodes    *follow.Cache[corev1.Node, corev1.Node] // contains only the Node of this proxy
	cidrs    *follow.Cache[networkingv1.ServiceCIDR, []string]
	running  sync.WaitGroup
}

func newSources(node string, client kubernetes.Interface, d *dirty, c clock.Clock, log *slog.Logger) *sources {
	return &sources{
		nodeName: node, clock: c, objects: newObjects(node, client, d, c, log),
		nodes: follow.NewCache(follow.Config[corev1.Node, corev1.Node]{
			Source: follow.Source(client.CoreV1().Nodes(), follow.Named(node)), Keep: slimNode,
			Changed: func(types.NamespacedName, *corev1.Node, *corev1.Node) { d.Note(func(b *batch) { b.node = true }) },
			Clock:   c, Log: log,
		}),
		cidrs: follow.NewCache(follow.Config[networkingv1.ServiceCIDR, []string]{
			Source:  follow.Source(client.NetworkingV1().ServiceCIDRs()),
			Keep:    func(r *networkingv1.ServiceCIDR) *[]string { return &r.Spec.CIDRs },
			Changed: func(types.NamespacedName, *[]string, *[]string) { d.Note(func(b *batch) { b.serviceCIDRs = true }) },
			Clock:   c, Log: log,
		}),
	}
}

// selectors returns an option that limits a list or watch by labels and fields.
func selectors(labels, fields string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = labels, fields }
}

// slimNode removes the parts of a Node that the proxy does not use, to save memory.
func slimNode(n *corev1.Node) *corev1.Node {
	n.Annotations, n.Status.Images, n.Status.Conditions = nil, nil, nil
	return n
}

// start fills the caches from the API and keeps them up to date until ctx ends. It returns when
// they are complete.
func (s *sources) start(ctx context.Context) error {
	for _, c := range []interface{ Run(context.Context) }{s.objects.services, s.objects.slices, s.nodes, s.cidrs} {
		s.running.Go(func() { c.Run(ctx) })
	}
	if err := follow.Wait(ctx, s.objects.services, s.objects.slices, s.nodes); err != nil {
		return err
	}
	late := s.clock.NewTimer(cidrWait)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C():
	case <-s.cidrs.Synced():
	}
	return ctx.Err()
}

// wait waits until all goroutines of start have ended.
func (s *sources) wait() { s.running.Wait() }

// node returns the Node of this proxy, or nil if it does not exist.
func (s *sources) node() *corev1.Node { return s.nodes.Get(types.NamespacedName{Name: s.nodeName}) }

// serviceCIDRs returns the ranges of cluster IPs, in no particular order.
func (s *sources) serviceCIDRs() []string {
	var out []string
	for _, ranges := range s.cidrs.All() {
		out = append(out, *ranges...)
	}
	return out
}
