// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// AttributesClassesName is the name of the controller of VolumeAttributesClasses.
const AttributesClassesName = "volumeattributesclass-protection-controller"

const (
	attributesClassFinalizer finalizer = "kubernetes.io/vac-protection"
	// byClass is the name of the indexes of volumes and of claims by the classes that they name.
	byClass = "volumeattributesclass"
)

type attributesClasses struct {
	controller.Deps
	queue  *controller.Queue
	lister storagelisters.VolumeAttributesClassLister
	users  []cache.Indexer
}

// NewAttributesClasses returns the controller that protects VolumeAttributesClasses.
func NewAttributesClasses(d controller.Deps) (controller.Controller, error) {
	core, classes := d.Informers.Core().V1(), d.Informers.Storage().V1().VolumeAttributesClasses()
	volumes, claims := core.PersistentVolumes().Informer(), core.PersistentVolumeClaims().Informer()
	c := &attributesClasses{Deps: d, lister: classes.Lister(),
		users: []cache.Indexer{volumes.GetIndexer(), claims.GetIndexer()}}
	c.queue = controller.NewQueue(AttributesClassesName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.OnChange(classes.Informer(), func(_, class *storagev1.VolumeAttributesClass) {
			if class != nil && attributesClassFinalizer.mayChange(class) {
				c.queue.AddObject(class)
			}
		}),
		followUsers(c, volumes, classesOfVolume),
		followUsers(c, claims, classesOfClaim),
	)
}

// followUsers adds the index byClass to an informer, and queues classes when an object does not name
// them any more. classes returns the classes that an object names.
func followUsers[T any](c *attributesClasses, informer cache.SharedIndexInformer, classes func(*T) []string) error {
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

// classesOfVolume returns the VolumeAttributesClass that a volume names, if it names one.
func classesOfVolume(v *v1.PersistentVolume) []string { return named(v.Spec.VolumeAttributesClassName) }

// classesOfClaim returns the VolumeAttributesClasses that a claim requests, has now, or is being changed
// to.
func classesOfClaim(c *v1.PersistentVolumeClaim) []string {
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
func (c *attributesClasses) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *attributesClasses) sync(ctx context.Context, name string) error {
	class, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) || err == nil && !attributesClassFinalizer.mayChange(class) {
		return nil
	}
	if err != nil {
		return err
	}
	if class.DeletionTimestamp != nil {
		used, err := inUse(c.queue, name, func() (bool, error) { return c.usedInCaches(name) },
			func() (bool, error) { return c.usedOnServer(ctx, name) })
		if err != nil || used {
			return err
		}
	}
	return change(ctx, c.Client.StorageV1().VolumeAttributesClasses(), attributesClassFinalizer, class.DeepCopy())
}

// usedInCaches reports whether a volume or a claim in the informers' caches names the
// VolumeAttributesClass.
func (c *attributesClasses) usedInCaches(name string) (bool, error) {
	for _, u := range c.users {
		keys, err := u.IndexKeys(byClass, name)
		if err != nil || len(keys) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// usedOnServer asks the API server whether a volume or a claim names the VolumeAttributesClass.
func (c *attributesClasses) usedOnServer(ctx context.Context, name string) (bool, error) {
	volumes, err := c.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("volumes: %w", err)
	}
	for i := range volumes.Items {
		if slices.Contains(classesOfVolume(&volumes.Items[i]), name) {
			return true, nil
		}
	}
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("claims: %w", err)
	}
	return slices.ContainsFunc(claims.Items, func(p v1.PersistentVolumeClaim) bool {
		return slices.Contains(classesOfClaim(&p), name)
	}), nil
}
