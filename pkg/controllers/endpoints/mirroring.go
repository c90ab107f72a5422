// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// MirroringName is the name of the controller that mirrors Endpoints.
const MirroringName = "endpointslice-mirroring-controller"

// mirrorManagedBy is the value of the label endpointslice.kubernetes.io/managed-by in the controller's
// slices.
const mirrorManagedBy = "endpointslicemirroring-controller.k8s.io"

type mirroringController struct {
	controller.Deps
	queue     *controller.Queue
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	slices    *sliceView
	metrics   *mirrorMetrics
}

// NewMirroring returns the controller that copies Endpoints of Services without a selector to
// EndpointSlices.
func NewMirroring(d controller.Deps) (controller.Controller, error) {
	core, slices := d.Informers.Core().V1(), d.Informers.Discovery().V1().EndpointSlices()
	c := &mirroringController{
		Deps: d, services: core.Services().Lister(), endpoints: core.Endpoints().Lister(),
		slices:  newSliceView(mirrorManagedBy, slices.Lister(), d.Client.DiscoveryV1()),
		metrics: newMirrorMetrics(d.Metrics),
	}
	c.queue = controller.NewQueue(MirroringName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(core.Endpoints().Informer(), func(old, e *v1.Endpoints) {
			if old != nil && mirrored(old) || e != nil && mirrored(e) {
				c.queue.AddAfter(controller.Key(controller.Latest(old, e)), c.Options.Slices.MirrorBatch)
			}
		}),
		controller.OnChange(core.Services().Informer(), func(old, s *v1.Service) {
			if old == nil || s == nil || (old.Spec.Selector == nil) != (s.Spec.Selector == nil) {
				c.queue.AddObject(controller.Latest(old, s))
			}
		}),
		controller.OnChange(slices.Informer(), c.sliceChanged),
	)
}

// Run implements controller.Controller.
func (c *mirroringController) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// sliceChanged queues Endpoints if another client changed one of their slices.
func (c *mirroringController) sliceChanged(old, slice *discoveryv1.EndpointSlice) {
	for _, key := range c.slices.affectedServices(old, slice) {
		c.queue.Add(key)
	}
	// A change of the annotations does not increment the generation, so the tracker can detect neither
	// that the cache lacks it nor that another client made it. Therefore check the slice after each one.
	if old != nil && slice != nil && slice.Labels[discoveryv1.LabelManagedBy] == mirrorManagedBy &&
		!maps.Equal(old.Annotations, slice.Annotations) {
		c.queue.Add(slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName])
	}
}

func (c *mirroringController) sync(ctx context.Context, key string) error {
	begun := c.Clock.Now()
	defer func() { c.metrics.duration.Observe(c.Clock.Since(begun).Seconds()) }()
	namespace, name := controller.SplitKey(key)
	e, err := c.endpoints.Endpoints(namespace).Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	service, serviceErr := c.services.Services(namespace).Get(name)
	if serviceErr != nil && !apierrors.IsNotFound(serviceErr) {
		return serviceErr
	}
	if err != nil || serviceErr != nil || !mirrored(e) || service.Spec.Selector != nil {
		return c.removeAll(ctx, namespace, name)
	}
	existing, err := c.slices.current(ctx, service)
	if err != nil {
		return err
	}
	groups, invalid, skipped := groupsOf(e, c.Options.Slices.MaxMirrored)
	if invalid > 0 {
		c.Events.Eventf(e, v1.EventTypeWarning, "InvalidIPAddress",
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", invalid)
	}
	if skipped > invalid {
		c.Events.Eventf(e, v1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped",
			c.Options.Slices.MaxMirrored, skipped)
	}
	todo := planMirror(e, groups, existing)
	c.metrics.planned(key, groups, existing, todo, skipped)
	return c.apply(ctx, e, todo, existing)
}

// removeAll deletes the mirrored slices of a Service that must have no such slices.
func (c *mirroringController) removeAll(ctx context.Context, namespace, service string) error {
	c.slices.forget(namespace, service)
	c.metrics.set(namespace+"/"+service, mirrorCounts{})
	slices, err := c.slices.cached(namespace, service)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range slices {
		err := c.Client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *mirroringController) apply(ctx context.Context, e *v1.Endpoints, todo mirrorChanges,
	existing []*discoveryv1.EndpointSlice) error {
	client := c.Client.DiscoveryV1().EndpointSlices(e.Namespace)
	if e.DeletionTimestamp == nil {
		for _, s := range todo.create {
			got, err := client.Create(ctx, s, metav1.CreateOptions{})
			if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
				return nil // the namespace is terminating, and the slices will be deleted with it
			}
			if err != nil {
				return fmt.Errorf("create slice: %w", err)
			}
			c.slices.tracker.Update(got)
			c.metrics.changes.WithLabelValues("create").Inc()
		}
	}
	for _, s := range todo.update {
		got, err := client.Update(ctx, s, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update slice %s: %w", s.Name, err)
		}
		c.slices.tracker.Update(got)
		c.metrics.changes.WithLabelValues("update").Inc()
	}
	for _, s := range todo.remove {
		if err := client.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete slice %s: %w", s.Name, err)
		}
		c.slices.tracker.ExpectDeletion(s)
		c.metrics.changes.WithLabelValues("delete").Inc()
	}
	for _, s := range existing {
		if !c.slices.tracker.Has(s) {
			// An earlier process wrote this slice. The tracker must know it to detect changes by
			// other clients.
			c.slices.tracker.Update(s)
		}
	}
	return nil
}
