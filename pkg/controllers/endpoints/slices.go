// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/metrics"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// SlicesName is the name of the controller of EndpointSlices.
const SlicesName = "endpointslice-controller"

// slicesManagedBy is the value of the label endpointslice.kubernetes.io/managed-by in the controller's
// slices.
const slicesManagedBy = "endpointslice-controller.k8s.io"

type slicesController struct {
	controller.Deps
	queue      *controller.Queue
	services   corelisters.ServiceLister
	pods       corelisters.PodLister
	nodes      corelisters.NodeLister
	slices     *sliceView
	reconciler *endpointslice.Reconciler
	triggers   *endpointsliceutil.TriggerTimeTracker
	topology   *topologycache.TopologyCache
}

// NewSlices returns the controller that maintains the EndpointSlices of Services with a selector.
func NewSlices(d controller.Deps) (controller.Controller, error) {
	metrics.RegisterMetrics() // registers the metrics that the library's Reconciler updates
	core, slices := d.Informers.Core().V1(), d.Informers.Discovery().V1().EndpointSlices()
	c := &slicesController{
		Deps: d, services: core.Services().Lister(), pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
		slices:   newSliceView(slicesManagedBy, slices.Lister(), d.Client.DiscoveryV1()),
		triggers: endpointsliceutil.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	c.reconciler = endpointslice.NewReconciler(d.Client, c.nodes, int32(d.Options.Slices.MaxEndpoints),
		c.slices.tracker, c.topology, d.Events, slicesManagedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	c.queue = controller.NewQueue(SlicesName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(core.Services().Informer(),
			func(old, s *v1.Service) { c.queue.AddObject(controller.Latest(old, s)) }),
		controller.OnChange(core.Pods().Informer(), func(old, pod *v1.Pod) {
			for key := range servicesOf(c.services, old, pod) {
				c.queue.AddAfter(key, c.Options.Slices.Batch)
			}
		}),
		controller.OnChange(core.Nodes().Informer(), func(old, n *v1.Node) {
			if old == nil || n == nil || nodeMatters(old, n) {
				c.nodesChanged()
			}
		}),
		controller.OnChange(slices.Informer(), c.sliceChanged),
	)
}

// Run implements controller.Controller.
func (c *slicesController) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// nodeMatters reports whether a change of a node may change topology hints.
func nodeMatters(old, n *v1.Node) bool {
	return old.Labels[v1.LabelTopologyZone] != n.Labels[v1.LabelTopologyZone] || nodeReady(old) != nodeReady(n) ||
		!old.Status.Allocatable.Cpu().Equal(*n.Status.Allocatable.Cpu())
}

func nodeReady(n *v1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// nodesChanged updates the zones and CPUs of nodes, from which topology hints are computed. It
// queues the Services whose hints must change.
func (c *slicesController) nodesChanged() {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	c.topology.SetNodes(klog.Background(), nodes)
	for _, key := range c.topology.GetOverloadedServices() {
		c.queue.Add(key)
	}
}

// sliceChanged queues a Service if another client changed one of its slices.
func (c *slicesController) sliceChanged(old, slice *discoveryv1.EndpointSlice) {
	for _, key := range c.slices.affectedServices(old, slice) {
		c.queue.Add(key)
	}
}

// sync reconciles a Service's slices, and counts the result in a metric.
func (c *slicesController) sync(ctx context.Context, key string) error {
	result, err := "success", c.reconcile(ctx, key)
	switch {
	case err == nil:
	case errors.Is(err, errStaleSlices):
		result = "stale"
	default:
		result = "error"
	}
	metrics.EndpointSliceSyncs.WithLabelValues(result).Inc()
	return err
}

func (c *slicesController) reconcile(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.triggers.DeleteService(namespace, name)
		c.reconciler.DeleteService(namespace, name)
		c.slices.forget(namespace, name)
		return nil
	}
	if err != nil {
		return err
	}
	if service.Spec.Type == v1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return nil // another client manages the slices of a Service without a selector
	}
	pods, err := c.pods.Pods(namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	slices, err := c.slices.current(ctx, service)
	if err != nil {
		return err
	}
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(namespace, service, pods)
	if err := c.reconciler.Reconcile(klog.Background(), service, pods, slices, trigger); err != nil {
		c.Events.Eventf(service, v1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", namespace, name, err)
		return err
	}
	return nil
}
