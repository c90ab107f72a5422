// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/follow"
)

// settle is how long the controller waits after a change for further changes, before it builds a
// routing table.
const settle = 20 * time.Millisecond

// The first and the longest delay before the controller retries to build a routing table or to write the
// status of Ingresses.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// busy limits the CPU time for building routing tables: after a table is built, the controller
// pauses for busy times the time that this took.
const busy = 9

// Controller builds the proxy's routing table from the cluster's objects whenever they change.
type Controller struct {
	client    kubernetes.Interface
	proxy     *Proxy
	publish   types.NamespacedName
	clock     clock.Clock
	log       *slog.Logger
	informers informers.SharedInformerFactory

	ingresses networkinglisters.IngressLister
	classes   networkinglisters.IngressClassLister
	services  corelisters.ServiceLister
	slices    discoverylisters.EndpointSliceLister
	secrets   *secrets

	changed follow.Signal
	reports chan report
}

// NewController returns a controller. It writes the addresses of the Service publish into the
// status of Ingresses. If publish has no name, it writes no addresses.
func NewController(client kubernetes.Interface, p *Proxy, publish types.NamespacedName, clk clock.Clock,
	log *slog.Logger) (*Controller, error) {
	factory := follow.NewInformers(client, 0)
	networking, core, discovery := factory.Networking().V1(), factory.Core().V1(), factory.Discovery().V1()
	c := &Controller{
		client: client, proxy: p, publish: publish, clock: clk, log: log, informers: factory,
		ingresses: networking.Ingresses().Lister(), classes: networking.IngressClasses().Lister(),
		services: core.Services().Lister(), slices: discovery.EndpointSlices().Lister(),
		changed: follow.NewSignal(), reports: make(chan report, 1),
	}
	c.secrets = newSecrets(client, clk, log, c.changed)
	on := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.changed.Raise() }, UpdateFunc: func(_, _ any) { c.changed.Raise() },
		DeleteFunc: func(any) { c.changed.Raise() },
	}
	var errs []error
	for _, i := range []cache.SharedIndexInformer{
		networking.Ingresses().Informer(), networking.IngressClasses().Informer(), core.Services().Informer(),
		discovery.EndpointSlices().Informer(),
	} {
		_, err := i.AddEventHandler(on)
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

// Run keeps the proxy's routing table up to date until ctx ends. It calls ready as soon as the
// proxy routes requests by the first table that was built.
func (c *Controller) Run(ctx context.Context, ready func()) error {
	c.informers.Start(ctx.Done())
	defer c.informers.Shutdown()
	defer c.secrets.stop()
	if c.informers.WaitForCacheSyncWithContext(ctx).AsError() != nil {
		return nil // an error means that ctx has ended
	}
	var reporting sync.WaitGroup
	defer reporting.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reporting.Go(func() { c.report(ctx) })
	first := true
	follow.Loop{
		Clock: c.clock, Wake: c.changed, FirstRetry: firstRetry, LastRetry: lastRetry,
		// This pause leaves most of the CPU time for requests, however often tenants change their
		// Ingresses.
		Settle: func(took time.Duration) time.Duration { return max(settle, busy*took) },
	}.Run(ctx, func(ctx context.Context) bool {
		if err := c.sync(ctx); err != nil {
			c.log.Error("Failed to build the routing table of hosts and paths", "err", err)
			return false
		}
		if first {
			ready()
			first = false
		}
		return true
	})
	return nil
}

// sync builds a routing table from the current objects, and queues a report for the status of the
// Ingresses.
func (c *Controller) sync(ctx context.Context) error {
	mine, err := c.mine()
	if err != nil {
		return err
	}
	c.secrets.want(ctx, mine)
	t := Build(mine, NewBackends(c.service, c.endpoints), c.secrets.certificate)
	c.proxy.Use(t)
	select {
	case <-c.reports: // drop an older report that has not been processed yet
	default:
	}
	c.reports <- report{mine, t}
	return nil
}

// mine returns the Ingresses whose IngressClass is served by this proxy.
func (c *Controller) mine() ([]*networkingv1.Ingress, error) {
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("classes: %w", err)
	}
	ours := map[string]bool{}
	for _, class := range classes {
		ours[class.Name] = class.Spec.Controller == service.IngressController
	}
	all, err := c.ingresses.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("ingresses: %w", err)
	}
	var out []*networkingv1.Ingress
	for _, ing := range all {
		if name := ing.Spec.IngressClassName; name != nil && ours[*name] {
			out = append(out, ing)
		}
	}
	return out, nil
}

// service returns a Service, or nil if it does not exist.
func (c *Controller) service(namespace, name string) *v1.Service {
	s, err := c.services.Services(namespace).Get(name)
	if err != nil {
		return nil
	}
	return s
}

func (c *Controller) endpoints(namespace, name string) []*discoveryv1.EndpointSlice {
	out, err := c.slices.EndpointSlices(namespace).List(
		labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name}))
	if err != nil {
		return nil // the lister reads from a cache and returns no error
	}
	return out
}
