// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumebinder binds each PersistentVolumeClaim to one PersistentVolume: the volume that
// the claim names, or the volume that is reserved for it, or the volume that matches it best. If no
// volume matches, an annotation assigns the claim to the provisioner of its class. A volume whose
// claim was deleted gets the phase Released; its provisioner deletes it.
//
// The functions planClaim and planVolume decide what to do, without I/O. A binding is written to
// the volume first and to the claim last. If a write fails, the next sync writes the missing parts.
// Two claims cannot get the same volume, because the second write to the volume fails with a
// Conflict error.
package volumebinder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "persistentvolume-binder-controller"

// Names of the indexes of claims and volumes.
const (
	byVolume    = "volume"           // claims, by the name of the volume that they name
	unbound     = "unbound"          // claims whose binding is not complete; all have the index value waits
	freeOfClass = "freestorageclass" // volumes without a claim, by the name of their class
	byClaim     = "claim"            // volumes, by the key of the claim that they are reserved for
	waits       = "yes"
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	claims, volumes *controller.Queue
	claimLister     corelisters.PersistentVolumeClaimLister
	volumeLister    corelisters.PersistentVolumeLister
	classes         storagelisters.StorageClassLister
	claimCache      cache.Indexer
	volumeCache     cache.Indexer
	podCache        cache.Indexer
	metrics         *metrics
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core, classes := d.Informers.Core().V1(), d.Informers.Storage().V1().StorageClasses()
	claims, volumes, pods := core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer(),
		core.Pods().Informer()
	c := &Controller{
		Deps: d, claimLister: core.PersistentVolumeClaims().Lister(),
		volumeLister: core.PersistentVolumes().Lister(), classes: classes.Lister(),
		claimCache: claims.GetIndexer(), volumeCache: volumes.GetIndexer(), podCache: pods.GetIndexer(),
		metrics: newMetrics(d.Metrics),
	}
	if d.Metrics != nil {
		if err := d.Metrics.Register(newCounts(c.volumeLister, c.claimLister)); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	c.claims = controller.NewQueue(Name+"/claims", d.Clock, d.Log, d.Options.Workers, ignoreNotFound(c.syncClaim))
	c.volumes = controller.NewQueue(Name+"/volumes", d.Clock, d.Log, d.Options.Workers, ignoreNotFound(c.syncVolume))
	return c, errors.Join(
		claims.AddIndexers(cache.Indexers{byVolume: index(volumeOf), unbound: index(waitsOf)}),
		volumes.AddIndexers(cache.Indexers{freeOfClass: index(freeClassOf), byClaim: index(claimOf)}),
		controller.IndexByClaim(pods),
		controller.OnChange(claims, c.claimChanged),
		controller.OnChange(volumes, c.volumeChanged),
		controller.OnChange(classes.Informer(), func(_, class *storagev1.StorageClass) {
			if class != nil {
				c.queueWaiting(anyClaim)
			}
		}),
	)
}

func index[T any](values func(*T) []string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		if t, ok := o.(*T); ok {
			return values(t), nil
		}
		return nil, nil
	}
}

func volumeOf(c *v1.PersistentVolumeClaim) []string {
	if c.Spec.VolumeName == "" {
		return nil
	}
	return []string{c.Spec.VolumeName}
}

func waitsOf(c *v1.PersistentVolumeClaim) []string {
	if metav1.HasAnnotation(c.ObjectMeta, volume.AnnBindCompleted) {
		return nil
	}
	return []string{waits}
}

func freeClassOf(v *v1.PersistentVolume) []string {
	if v.Spec.ClaimRef != nil {
		return nil
	}
	return []string{volume.GetPersistentVolumeClass(v)}
}

func claimOf(v *v1.PersistentVolume) []string {
	if v.Spec.ClaimRef == nil {
		return nil
	}
	return []string{v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name}
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.claims.Run(ctx) })
	g.Go(func() error { return c.volumes.Run(ctx) })
	// Sync pending claims periodically. This repeats the events that say why a claim is pending.
	controller.RunEvery(ctx, c.Clock, c.Options.Periods.Claims, func(context.Context) { c.queueWaiting(anyClaim) })
	return g.Wait()
}

// claimChanged queues a claim, and the volumes that it names or that are reserved for it.
func (c *Controller) claimChanged(old, claim *v1.PersistentVolumeClaim) {
	if claim != nil {
		c.claims.AddObject(claim)
	}
	if old != nil && (claim == nil || claim.UID != old.UID) {
		c.metrics.forget(old)
	}
	for _, x := range []*v1.PersistentVolumeClaim{old, claim} {
		if x == nil {
			continue
		}
		for _, name := range volumeOf(x) {
			c.volumes.Add(name)
		}
		names, err := c.volumeCache.IndexKeys(byClaim, controller.Key(x))
		if err != nil {
			continue // cannot happen: New has added the index
		}
		for _, name := range names {
			c.volumes.Add(name)
		}
	}
}

// volumeChanged queues a volume, and the claims that name it or may now be bound to it.
func (c *Controller) volumeChanged(old, v *v1.PersistentVolume) {
	name := controller.Latest(old, v).Name
	c.volumes.Add(name)
	keys, err := c.claimCache.IndexKeys(byVolume, name)
	if err == nil {
		for _, key := range keys {
			c.claims.Add(key)
		}
	}
	if v == nil {
		return
	}
	for _, key := range claimOf(v) {
		c.claims.Add(key)
	}
	if v.Spec.ClaimRef == nil && v.Status.Phase == v1.VolumeAvailable {
		c.queueWaiting(func(claim *v1.PersistentVolumeClaim) bool {
			found, err := best(claim, []*v1.PersistentVolume{v}, false)
			return err != nil || found != nil
		})
	}
}

// queueWaiting queues the claims whose binding is not complete and for which the given function
// returns true.
func (c *Controller) queueWaiting(may func(*v1.PersistentVolumeClaim) bool) {
	waiting, err := c.claimCache.ByIndex(unbound, waits)
	if err != nil {
		return // cannot happen: New has added the index
	}
	for _, o := range waiting {
		if claim := o.(*v1.PersistentVolumeClaim); may(claim) {
			c.claims.AddObject(claim)
		}
	}
}

func anyClaim(*v1.PersistentVolumeClaim) bool { return true }

// candidates returns the volumes that a claim may be bound to: volumes of its StorageClass without
// a claim, and volumes that are reserved for it.
func (c *Controller) candidates(claim *v1.PersistentVolumeClaim) ([]*v1.PersistentVolume, error) {
	free, err := c.volumeCache.ByIndex(freeOfClass, volume.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	reserved, err := c.volumeCache.ByIndex(byClaim, controller.Key(claim))
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var out []*v1.PersistentVolume
	for _, o := range slices.Concat(free, reserved) {
		out = append(out, o.(*v1.PersistentVolume))
	}
	return out, nil
}
