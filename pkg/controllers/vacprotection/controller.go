// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vacprotection adds a finalizer to VolumeAttributesClasses. A class that is being deleted
// keeps the finalizer while a volume or a claim names the class.
package vacprotection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "volumeattributesclass-protection-controller"

const (
	finalizer = "kubernetes.io/vac-protection"
	// byClass is the name of the indexes of volumes and of claims by the classes that they name.
	byClass = "volumeattributesclass"
)

// recheck is the time after which a VolumeAttributesClass is synced again if it is used by an
// object that the informers' caches do not show.
const recheck = time.Minute

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue   *controller.Queue
	classes storagelisters.VolumeAttributesClassLister
	users   []cache.Indexer
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core, classes := d.Informers.Core().V1(), d.Informers.Storage().V1().VolumeAttributesClasses()
	volumes, claims := core.PersistentVolumes().Informer(), core.PersistentVolumeClaims().Informer()
	c := &Controller{Deps: d, classes: classes.Lister(), users: []cache.Indexer{volumes.GetIndexer(), claims.GetIndexer()}}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(classes.Informer(), func(_, class *storagev1.VolumeAttributesClass) {
			if class != nil && mustSync(class) {
				c.queue.AddObject(class)
			}
		}),
		follow(c, volumes, ofVolume),
		follow(c, claims, ofClaim),
	)
}

// follow adds the index byClass to an informer, and queues classes when an object does not name
// them any more. classes returns the classes that an object names.
func follow[T any](c *Controller, informer cache.SharedIndexInformer, classes func(*T) []string) error {
	err := informer.AddIndexers(cache.Indexers{byClass: func(o any) ([]string, error) {
		if t, ok := o.(*T); ok {
			return classes(t), nil
		}
		return nil, nil
	}})
	if err != nil {
		return fmt.Errorf("index by class: %w", err)
	}
	return controller.OnChange(informer, func(old, t *T) {
		if old == nil {
			return
		}
		var now []string
		if t != nil {
			now = classes(t)
		}
		for _, name := range classes(old) {
			if !slices.Contains(now, name) {
				c.queue.Add(name)
			}
		}
	})
}

// ofVolume returns the VolumeAttributesClass that a volume names, if it names one.
func ofVolume(v *v1.PersistentVolume) []string { return named(v.Spec.VolumeAttributesClassName) }

// ofClaim returns the VolumeAttributesClasses that a claim requests, has now, or is being changed
// to.
func ofClaim(c *v1.PersistentVolumeClaim) []string {
	names := append(named(c.Spec.VolumeAttributesClassName), named(c.Status.CurrentVolumeAttributesClassName)...)
	if m := c.Status.ModifyVolumeStatus; m != nil {
		names = append(names, named(&m.TargetVolumeAttributesClassName)...)
	}
	return names
}

func named(name *string) []string {
	if name == nil || *name == "" {
		return nil
	}
	return []string{*name}
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// mustSync reports whether the finalizer of a VolumeAttributesClass may have to change: it is
// missing, or the class is being deleted and has it.
func mustSync(class *storagev1.VolumeAttributesClass) bool {
	return (class.DeletionTimestamp != nil) == slices.Contains(class.Finalizers, finalizer)
}

func (c *Controller) sync(ctx context.Context, name string) error {
	class, err := c.classes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && !mustSync(class) {
		return nil
	}
	if err != nil {
		return err
	}
	next := class.DeepCopy()
	if class.DeletionTimestamp == nil {
		next.Finalizers = append(next.Finalizers, finalizer)
	} else {
		if used, err := c.used(name); err != nil || used {
			return err
		}
		if used, err := c.stillUsed(ctx, name); err != nil || used {
			// If the object that uses the class is deleted before the caches show it, there is no
			// event of the deletion. Therefore check the class again later.
			c.queue.AddAfter(name, recheck)
			return err
		}
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	}
	_, err = c.Client.StorageV1().VolumeAttributesClasses().Update(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer: %w", err)
	}
	return nil
}

// used reports whether a volume or a claim in the informers' caches names the
// VolumeAttributesClass.
func (c *Controller) used(name string) (bool, error) {
	for _, u := range c.users {
		keys, err := u.IndexKeys(byClass, name)
		if err != nil || len(keys) > 0 {
			return true, err
		}
	}
	return false, nil
}

// stillUsed asks the API server whether a volume or a claim names the VolumeAttributesClass,
// because the caches may lag.
func (c *Controller) stillUsed(ctx context.Context, name string) (bool, error) {
	volumes, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return true, fmt.Errorf("volumes: %w", err)
	}
	for i := range volumes.Items {
		if slices.Contains(ofVolume(&volumes.Items[i]), name) {
			return true, nil
		}
	}
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return true, fmt.Errorf("claims: %w", err)
	}
	return slices.ContainsFunc(claims.Items, func(p v1.PersistentVolumeClaim) bool {
		return slices.Contains(ofClaim(&p), name)
	}), nil
}
