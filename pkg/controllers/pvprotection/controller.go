// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pvprotection adds a finalizer to PersistentVolumes. A volume that is being deleted keeps
// the finalizer while it is bound to a claim.
package pvprotection

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "persistentvolume-protection-controller"

const finalizer = "kubernetes.io/pv-protection"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue   *controller.Queue
	volumes corelisters.PersistentVolumeLister
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	volumes := d.Informers.Core().V1().PersistentVolumes()
	c := &Controller{Deps: d, volumes: volumes.Lister()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(volumes.Informer(), func(_, v *v1.PersistentVolume) {
		if v != nil {
			c.queue.Add(v.Name)
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) sync(ctx context.Context, name string) error {
	volume, err := c.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	held := slices.Contains(volume.Finalizers, finalizer)
	next := volume.DeepCopy()
	switch {
	case volume.DeletionTimestamp == nil && !held:
		next.Finalizers = append(next.Finalizers, finalizer)
	case volume.DeletionTimestamp != nil && held && volume.Status.Phase != v1.VolumeBound:
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	default:
		return nil
	}
	_, err = c.Client.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer: %w", err)
	}
	return nil
}
