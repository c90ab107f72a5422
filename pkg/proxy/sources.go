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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
	apiservice "keelson.dev/api/service"
)

// byService is the index of slices by the service that they belong to.
const byService = "service"

// cidrWait is how long the start waits for ServiceCIDRs, which an API server may not have.
const cidrWait = 5 * time.Second

// Waits between questions whether the API server answers yet.
const (
	firstAsk = 50 * time.Millisecond
	lastAsk  = 500 * time.Millisecond
)

// sources are what the proxy knows of the API. Their handlers only note names.
type sources struct {
	client                         kubernetes.Interface
	nodeName                       string
	services, slices, nodes, cidrs cache.SharedIndexInformer
	running                        sync.WaitGroup
}

func newSources(node string, client kubernetes.Interface, d *dirty) (*sources, error) {
	svcs, slices := client.CoreV1().Services(""), client.DiscoveryV1().EndpointSlices("")
	nodes, cidrs := client.CoreV1().Nodes(), client.NetworkingV1().ServiceCIDRs()
	s := &sources{client: client, nodeName: node}
	indexers := cache.Indexers{byService: func(o any) ([]string, error) {
		if name, ok := sliceService(o); ok {
			return []string{name.String()}, nil
		}
		return nil, nil
	}}
	s.services = informer(svcs.List, svcs.Watch, &corev1.Service{}, nil, "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None")
	s.slices = informer(slices.List, slices.Watch, &discoveryv1.EndpointSlice{}, indexers, "!"+corev1.IsHeadlessService, "")
	s.nodes = informer(nodes.List, nodes.Watch, &corev1.Node{}, nil, "", "metadata.name="+node)
	s.cidrs = informer(cidrs.List, cidrs.Watch, &networkingv1.ServiceCIDR{}, nil, "", "")
	var errs []error
	on := func(i cache.SharedIndexInformer, transform cache.TransformFunc, f func(any)) {
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: f, DeleteFunc: f, UpdateFunc: func(_, o any) { f(o) },
		})
		errs = append(errs, err, i.SetTransform(transform))
	}
	on(s.services, slimService, func(o any) {
		if name, ok := nameOf(o); ok {
			d.note(func(b *batch) { b.services[name] = true; b.svcs++ })
		}
	})
	on(s.slices, slimSlice, func(o any) { noteSlice(d, o) })
	on(s.nodes, slimNode, func(any) { d.note(func(b *batch) { b.node = true }) })
	on(s.cidrs, slim, func(any) { d.note(func(b *batch) { b.serviceCIDRs = true }) })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("informers: %w", err)
	}
	return s, nil
}

// informer lists and watches the objects that the selectors match.
func informer[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error), follow func(context.Context, metav1.ListOptions) (watch.Interface, error),
	of runtime.Object, indexers cache.Indexers, labels, fields string,
) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = labels, fields
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = labels, fields
			return follow(ctx, o)
		},
	}
	return cache.NewSharedIndexInformer(lw, of, 0, indexers)
}

// noteSlice notes the slice's service, and when the change of its endpoints began,
// unless that was before this process.
func noteSlice(d *dirty, o any) {
	name, ok := sliceService(o)
	if !ok {
		return
	}
	var at time.Time
	if s, ok := o.(*discoveryv1.EndpointSlice); ok {
		at, _ = time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	}
	d.note(func(b *batch) {
		b.services[name] = true
		b.slices++
		if have, ok := b.triggers[name]; at.After(d.since) && (!ok || at.Before(have)) {
			b.triggers[name] = at
		}
	})
}

func nameOf(o any) (types.NamespacedName, bool) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return types.NamespacedName{}, false
	}
	ns, name, err := cache.SplitMetaNamespaceKey(key)
	return types.NamespacedName{Namespace: ns, Name: name}, err == nil
}

func sliceService(o any) (types.NamespacedName, bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}, true
}

// The transforms drop what nothing here reads: there may be very many of these objects.

func slim(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}

func slimService(o any) (any, error) {
	if s, ok := o.(*corev1.Service); ok {
		if by, ok := s.Annotations[apiservice.AnnouncedBy]; ok {
			s.Annotations = map[string]string{apiservice.AnnouncedBy: by}
		} else {
			s.Annotations = nil
		}
		s.Spec.Selector = nil
	}
	return slim(o)
}

func slimSlice(o any) (any, error) {
	if s, ok := o.(*discoveryv1.EndpointSlice); ok {
		s.OwnerReferences = nil
		for i := range s.Endpoints {
			s.Endpoints[i].TargetRef, s.Endpoints[i].Hostname, s.Endpoints[i].DeprecatedTopology = nil, nil, nil
		}
	}
	return slim(o)
}

func slimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.Annotations, n.Status.Images, n.Status.Conditions = nil, nil, nil
	}
	return slim(o)
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

// start runs the informers until ctx ends and returns when they have what there is.
func (s *sources) start(ctx context.Context, c clock.Clock) error {
	all := []cache.SharedIndexInformer{s.services, s.slices, s.nodes, s.cidrs}
	for _, i := range all {
		s.running.Go(func() { i.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), s.services.HasSynced, s.slices.HasSynced, s.nodes.HasSynced) {
		return ctx.Err()
	}
	late, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := c.AfterFunc(cidrWait, cancel)
	defer timer.Stop()
	cache.WaitForCacheSync(late.Done(), s.cidrs.HasSynced)
	return ctx.Err()
}

// wait returns when the informers have ended.
func (s *sources) wait() { s.running.Wait() }

// get returns a service, nil if there is none, and its slices.
func (s *sources) get(name types.NamespacedName) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	o, ok, err := s.services.GetStore().GetByKey(name.String())
	if err != nil || !ok {
		return nil, nil
	}
	list, err := s.slices.GetIndexer().ByIndex(byService, name.String())
	if err != nil {
		return nil, nil
	}
	out := make([]*discoveryv1.EndpointSlice, 0, len(list))
	for _, e := range list {
		out = append(out, e.(*discoveryv1.EndpointSlice))
	}
	return o.(*corev1.Service), out
}

// names are those of all services.
func (s *sources) names() []types.NamespacedName {
	var out []types.NamespacedName
	for _, o := range s.services.GetStore().List() {
		if name, ok := nameOf(o); ok {
			out = append(out, name)
		}
	}
	return out
}

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
