// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
)

// cidrWait is how long the start waits for ServiceCIDRs, which an API server may not have.
const cidrWait = 5 * time.Second

// Waits between questions whether the API server answers yet.
const (
	firstAsk = 50 * time.Millisecond
	lastAsk  = 500 * time.Millisecond
)

// sources are what the proxy knows of the API. What tells them of changes only notes names.
type sources struct {
	client       kubernetes.Interface
	nodeName     string
	objects      *objects
	reflectors   []*cache.Reflector
	nodes, cidrs cache.SharedIndexInformer
	running      sync.WaitGroup
}

func newSources(node string, client kubernetes.Interface, d *dirty) (*sources, error) {
	svcs, slices := client.CoreV1().Services(""), client.DiscoveryV1().EndpointSlices("")
	nodes, cidrs := client.CoreV1().Nodes(), client.NetworkingV1().ServiceCIDRs()
	s := &sources{client: client, nodeName: node, objects: newObjects(node, d)}
	s.reflectors = []*cache.Reflector{
		cache.NewNamedReflector("services", selecting(svcs.List, svcs.Watch, "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"),
			&corev1.Service{}, s.objects.services, 0),
		cache.NewNamedReflector("endpointslices", selecting(slices.List, slices.Watch, "!"+corev1.IsHeadlessService, ""),
			&discoveryv1.EndpointSlice{}, s.objects.slices, 0),
	}
	s.nodes = cache.NewSharedIndexInformer(selecting(nodes.List, nodes.Watch, "", "metadata.name="+node), &corev1.Node{}, 0, nil)
	s.cidrs = cache.NewSharedIndexInformer(selecting(cidrs.List, cidrs.Watch, "", ""), &networkingv1.ServiceCIDR{}, 0, nil)
	on := func(i cache.SharedIndexInformer, f func(*batch)) error {
		note := func() { d.note(f) }
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, DeleteFunc: func(any) { note() }, UpdateFunc: func(_, _ any) { note() },
		})
		return err
	}
	err := errors.Join(
		on(s.nodes, func(b *batch) { b.node = true }), s.nodes.SetTransform(slimNode),
		on(s.cidrs, func(b *batch) { b.serviceCIDRs = true }),
	)
	if err != nil {
		return nil, fmt.Errorf("informers: %w", err)
	}
	return s, nil
}

// selecting lists and watches the objects that the selectors match.
func selecting[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error), labels, fields string,
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = labels, fields
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = labels, fields
			return follow(ctx, o)
		},
	}
}

// slimNode drops what nothing here reads.
func slimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.Annotations, n.Status.Images, n.Status.Conditions = nil, nil, nil, nil
	}
	return o, nil
}

// answered returns when the API server lists services for us. When a cluster starts it may
// not be there yet, or not know our rights; the informers' own retries are slower.
func (s *sources) answered(ctx context.Context, c clock.Clock, log *slog.Logger) {
	for wait := firstAsk; ; wait = min(2*wait, lastAsk) {
		_, err := s.client.CoreV1().Services("").List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return
		}
		log.Debug("API server does not answer yet", "err", err)
		timer := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// start follows the API until ctx ends and returns when there is what it has now.
func (s *sources) start(ctx context.Context, c clock.Clock) error {
	for _, r := range s.reflectors {
		s.running.Go(func() { r.RunWithContext(ctx) })
	}
	for _, i := range []cache.SharedIndexInformer{s.nodes, s.cidrs} {
		s.running.Go(func() { i.RunWithContext(ctx) })
	}
	if !s.objects.listed(ctx) || !cache.WaitForCacheSync(ctx.Done(), s.nodes.HasSynced) {
		return ctx.Err()
	}
	late, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := c.AfterFunc(cidrWait, cancel)
	defer timer.Stop()
	cache.WaitForCacheSync(late.Done(), s.cidrs.HasSynced)
	return ctx.Err()
}

// wait returns when nothing is followed any more.
func (s *sources) wait() { s.running.Wait() }

// node is our own Node; nil if there is none.
func (s *sources) node() *corev1.Node {
	o, ok, err := s.nodes.GetStore().GetByKey(s.nodeName)
	if err != nil || !ok {
		return nil
	}
	return o.(*corev1.Node)
}

func (s *sources) serviceCIDRs() []*networkingv1.ServiceCIDR {
	var out []*networkingv1.ServiceCIDR
	for _, o := range s.cidrs.GetStore().List() {
		out = append(out, o.(*networkingv1.ServiceCIDR))
	}
	return out
}
