// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer assigns IP addresses from the operator's ranges to Services of type
// LoadBalancer, for clusters without a cloud provider. It also selects, for each Service, the node
// that announces the addresses on its network link. The service proxy of that node answers ARP and
// neighbor requests for the addresses (package pkg/proxy/announce). Every node forwards traffic for
// them to endpoints.
//
// An address belongs to one Service, which keeps it as long as it is of type LoadBalancer. A
// Service keeps its node as long as the node is ready, is not excluded from load balancers and, if
// the external traffic policy is Local, has an endpoint of the Service. One write of the Service's
// status sets both the addresses and the node.
//
// The controller does not check that the ranges belong to the network of the link; the operator
// must ensure that.
package loadbalancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "service-lb-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister
	slices   discoverylisters.EndpointSliceLister

	// given are addresses that were assigned to Services but that the cache may not show yet, by
	// the Service's key. Only sync uses this map, and it runs in one goroutine, so that two
	// Services never get the same address.
	given map[string][]netip.Addr
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	services, nodes, endpoints := d.Informers.Core().V1().Services(), d.Informers.Core().V1().Nodes(),
		d.Informers.Discovery().V1().EndpointSlices()
	c := &Controller{Deps: d, services: services.Lister(), nodes: nodes.Lister(), slices: endpoints.Lister(),
		given: map[string][]netip.Addr{}}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, 1, c.sync)
	return c, errors.Join(
		controller.OnChange(services.Informer(), func(old, s *v1.Service) {
			c.queue.AddObject(controller.Latest(old, s))
			if old != nil && (s == nil || released(old, s)) {
				c.queueAll(func(o *v1.Service) bool { return len(statusAddresses(o)) < len(o.Spec.IPFamilies) })
			}
		}),
		controller.OnChange(nodes.Informer(), func(old, n *v1.Node) {
			if old == nil || n == nil || serves(old) != serves(n) {
				c.queueAll(func(*v1.Service) bool { return true })
			}
		}),
		controller.OnChange(endpoints.Informer(), func(old, s *discoveryv1.EndpointSlice) {
			s = controller.Latest(old, s)
			svc, err := c.services.Services(s.Namespace).Get(s.Labels[discoveryv1.LabelServiceName])
			if err == nil && wants(svc) && svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
				c.queue.AddObject(svc)
			}
		}),
	)
}

// released reports whether a Service has lost an address, so that other Services may get it.
func released(old, s *v1.Service) bool {
	has := statusAddresses(s)
	return slices.ContainsFunc(statusAddresses(old), func(a netip.Addr) bool { return !slices.Contains(has, a) })
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// queueAll queues the Services of type LoadBalancer for which the given function returns true.
func (c *Controller) queueAll(which func(*v1.Service) bool) {
	list, err := c.services.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, s := range list {
		if wants(s) && which(s) {
			c.queue.AddObject(s)
		}
	}
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	s, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		delete(c.given, key)
		return nil
	}
	if err != nil {
		return err
	}
	if !wants(s) {
		delete(c.given, key)
		if s.Spec.Type != v1.ServiceTypeLoadBalancer && s.Annotations[service.AnnouncedBy] != "" {
			return c.write(ctx, s, nil, "")
		}
		return nil
	}
	taken, err := c.taken(s)
	if err != nil {
		return err
	}
	addresses, short := allocate(s, c.Options.LoadBalancerRanges, taken)
	if len(short) > 0 {
		c.Events.Eventf(s, v1.EventTypeWarning, "SyncLoadBalancerFailed",
			"Error syncing load balancer: no address of %v is free", short)
	}
	node, err := c.announcer(s)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		node = ""
	}
	if slices.Equal(addresses, statusAddresses(s)) && s.Annotations[service.AnnouncedBy] == node {
		delete(c.given, key)
		return nil
	}
	if err := c.write(ctx, s, addresses, node); err != nil {
		return err
	}
	if !slices.Equal(addresses, statusAddresses(s)) && len(addresses) > 0 {
		c.Events.Event(s, v1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	c.given[key] = addresses
	return nil
}

// taken returns the addresses that the Service s must not get because other Services have them. If
// s and another Service have the same address, the older of the two keeps it.
func (c *Controller) taken(s *v1.Service) (map[netip.Addr]bool, error) {
	list, err := c.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	out, mine := map[netip.Addr]bool{}, statusAddresses(s)
	for _, o := range list {
		if o.UID == s.UID || o.Spec.Type != v1.ServiceTypeLoadBalancer {
			continue
		}
		for _, a := range slices.Concat(statusAddresses(o), c.given[o.Namespace+"/"+o.Name]) {
			if !slices.Contains(mine, a) || compareServices(o, s) < 0 {
				out[a] = true
			}
		}
	}
	return out, nil
}

func (c *Controller) announcer(s *v1.Service) (string, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("nodes: %w", err)
	}
	endpoints, err := c.slices.EndpointSlices(s.Namespace).List(
		labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
	if err != nil {
		return "", fmt.Errorf("endpoints: %w", err)
	}
	return elect(s, nodes, endpoints), nil
}

// write sets the addresses in the status of a Service and the node in an annotation. If node is "",
// it removes the annotation.
func (c *Controller) write(ctx context.Context, s *v1.Service, addresses []netip.Addr, node string) error {
	ingress := []v1.LoadBalancerIngress{}
	for _, a := range addresses {
		mode := v1.LoadBalancerIPModeVIP
		ingress = append(ingress, v1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	var by any
	if node != "" {
		by = node
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID, "annotations": map[string]any{service.AnnouncedBy: by}},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = c.Client.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
