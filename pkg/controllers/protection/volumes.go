// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// VolumesName is the name of the controller of PersistentVolumes.
const VolumesName = "persistentvolume-protection-controller"

const volumeFinalizer finalizer = "kubernetes.io/pv-protection"

type volumes struct {
	controller.Deps
	queue  *controller.Queue
	lister corelisters.PersistentVolumeLister
}

// NewVolumes returns the controller that protects PersistentVolumes.
func NewVolumes(d controller.Deps) (controller.Controller, error) {
	informer := d.Informers.Core().V1().PersistentVolumes()
	c := &volumes{Deps: d, lister: informer.Lister()}
	c.queue = controller.NewQueue(VolumesName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(informer.Informer(), func(_, v *v1.PersistentVolume) {
		if v != nil {
			c.queue.Add(v.Name)
		}
	})
}

// Run implements controller.Controller.
func (c *volumes) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *volumes) sync(ctx context.Context, name string) error {
	volume, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !volumeFinalizer.mayChange(volume) || volume.DeletionTimestamp != nil && volume.Status.Phase == v1.VolumeBound {
		return nil
	}
	return change(ctx, c.Client.CoreV1().PersistentVolumes(), volumeFinalizer, volume.DeepCopy())
}
