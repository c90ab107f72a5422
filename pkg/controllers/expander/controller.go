// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expander records an event on each PersistentVolumeClaim that requests more storage than
// its volume has. The event says that the claim waits for an external controller, because the
// resizers of CSI drivers expand the volumes. Volumes of other kinds cannot be expanded. The
// controller writes nothing but these events.
package expander

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "persistentvolume-expander-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue  *controller.Queue
	claims corelisters.PersistentVolumeClaimLister
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	claims := d.Informers.Core().V1().PersistentVolumeClaims()
	c := &Controller{Deps: d, claims: claims.Lister()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(claims.Informer(), func(old, claim *v1.PersistentVolumeClaim) {
		if old != nil && claim != nil && grew(old, claim) {
			c.queue.AddObject(claim)
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// grew reports whether a claim requests more storage than before the change.
func grew(old, claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) > 0
}

func (c *Controller) sync(_ context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	claim, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if claim.Status.Phase == v1.ClaimBound &&
		claim.Spec.Resources.Requests.Storage().Cmp(*claim.Status.Capacity.Storage()) > 0 {
		c.Events.Event(claim, v1.EventTypeNormal, "ExternalExpanding",
			"waiting for an external controller to expand this PVC")
	}
	return nil
}
