// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csidrivers

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/protoadapt"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "csi-drivers-controller"

const (
	// Label is the label of a CSIDriver object whose volumes csi-drivers-controller manages, so that the
	// driver needs no sidecars. The value is "kubelet".
	Label = "storage.keelson.dev/control"
	// Kubelet is the value of Label. It means that the controller calls the driver through the
	// kubelets.
	Kubelet = "kubelet"
)

// bySource is the name of the index of VolumeAttachments by the name of their PersistentVolume.
const bySource = "csidrivers-source"

// caller calls a gRPC method of a driver on a node. Its errors have gRPC codes.
type caller interface {
	call(ctx context.Context, node, driver, method string, in, out protoadapt.MessageV1) error
}

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	drivers caller

	// The queues, one for each kind of work.

	provisionQueue, reclaimQueue, attachQueue, expandQueue, modifyQueue *controller.Queue

	capacityQueue *controller.Queue // the keys of this queue are names of drivers
	refollow      []func()          // these functions queue all objects for the other queues, see syncAll

	// The listers and indexes of objects in the caches.

	claims           corelisters.PersistentVolumeClaimLister
	volumes          corelisters.PersistentVolumeLister
	nodes            corelisters.NodeLister
	classes          storagelisters.StorageClassLister
	objects          storagelisters.CSIDriverLister
	csiNodes         storagelisters.CSINodeLister
	attachments      storagelisters.VolumeAttachmentLister
	capacities       storagelisters.CSIStorageCapacityLister
	attributeClasses storagelisters.VolumeAttributesClassLister
	bySource         cache.Indexer
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core, storage := d.Informers.Core().V1(), d.Informers.Storage().V1()
	claims, volumes, attachments := core.PersistentVolumeClaims(), core.PersistentVolumes(), storage.VolumeAttachments()
	c := &Controller{
		Deps: d, drivers: proxied{d.Client.CoreV1().RESTClient()},
		claims: claims.Lister(), volumes: volumes.Lister(), nodes: core.Nodes().Lister(),
		classes: storage.StorageClasses().Lister(), objects: storage.CSIDrivers().Lister(),
		csiNodes:         storage.CSINodes().Lister(),
		capacities:       storage.CSIStorageCapacities().Lister(),
		attributeClasses: storage.VolumeAttributesClasses().Lister(), attachments: attachments.Lister(),
		bySource: attachments.Informer().GetIndexer(),
	}
	loop := func(what string, sync func(context.Context, string) error) *controller.Queue {
		return controller.NewQueue(Name+"/"+what, d.Clock, d.Log, d.Options.Workers, sync)
	}
	c.provisionQueue, c.expandQueue = loop("make", c.syncClaim), loop("grow", c.syncSize)
	c.reclaimQueue, c.attachQueue = loop("delete", c.syncVolume), loop("attach", c.syncAttachment)
	c.modifyQueue, c.capacityQueue = loop("change", c.syncAttributes), loop("capacity", c.syncCapacity)
	c.refollow = []func(){
		queueAll(claims.Informer(), c.provisionQueue), queueAll(claims.Informer(), c.expandQueue),
		queueAll(claims.Informer(), c.modifyQueue), queueAll(volumes.Informer(), c.reclaimQueue),
		queueAll(attachments.Informer(), c.attachQueue),
	}
	return c, errors.Join(
		attachments.Informer().AddIndexers(cache.Indexers{bySource: func(o any) ([]string, error) {
			if a, ok := o.(*storagev1.VolumeAttachment); ok && a.Spec.Source.PersistentVolumeName != nil {
				return []string{*a.Spec.Source.PersistentVolumeName}, nil
			}
			return nil, nil
		}}),
		controller.OnChange(claims.Informer(), func(_, claim *v1.PersistentVolumeClaim) {
			if claim != nil {
				c.provisionQueue.AddObject(claim)
				c.expandQueue.AddObject(claim)
				c.modifyQueue.AddObject(claim)
			}
		}),
		controller.OnChange(storage.VolumeAttributesClasses().Informer(), func(old, _ *storagev1.VolumeAttributesClass) {
			if old == nil { // when a class is created, claims may be waiting for it
				queueAll(claims.Informer(), c.modifyQueue)()
				queueAll(claims.Informer(), c.provisionQueue)()
			}
		}),
		controller.OnChange(volumes.Informer(), func(old, v *v1.PersistentVolume) {
			if one := controller.Latest(old, v); (old == nil || v == nil) && one.Spec.CSI != nil {
				c.capacityQueue.AddPaced(one.Spec.CSI.Driver)
			}
			if v != nil && v.Spec.CSI != nil {
				c.reclaimQueue.AddObject(v)
			}
			// If a volume is deleted before its claim is bound to it, the claim needs a new volume.
			// The controller may also see a change of a claim before it sees the claim's volume;
			// then it can make the change only now.
			if one := controller.Latest(old, v); one.Spec.CSI != nil && one.Spec.ClaimRef != nil {
				key := one.Spec.ClaimRef.Namespace + "/" + one.Spec.ClaimRef.Name
				c.provisionQueue.Add(key)
				c.expandQueue.Add(key)
				c.modifyQueue.Add(key)
			}
		}),
		controller.OnChange(attachments.Informer(), func(old, a *storagev1.VolumeAttachment) {
			if a != nil {
				c.attachQueue.AddObject(a)
			} else if old.Spec.Source.PersistentVolumeName != nil {
				c.reclaimQueue.Add(*old.Spec.Source.PersistentVolumeName)
			}
		}),
		controller.OnChange(storage.CSIDrivers().Informer(), func(old, d *storagev1.CSIDriver) {
			// Sync the driver also if it no longer has the label, so that its capacities are
			// deleted.
			c.capacityQueue.Add(controller.Latest(old, d).Name)
			c.syncAll()
		}),
		controller.OnChange(storage.StorageClasses().Informer(), func(old, s *storagev1.StorageClass) {
			c.capacityQueue.Add(controller.Latest(old, s).Provisioner)
		}),
		controller.OnChange(storage.CSIStorageCapacities().Informer(), func(old, o *storagev1.CSIStorageCapacity) {
			// Handle objects that an earlier process created and objects that another client
			// deleted. Updates are skipped, because they are this controller's own writes.
			if one := controller.Latest(old, o); (old == nil || o == nil) && one.Labels[managedBy] == Name {
				c.capacityQueue.Add(one.Labels[driverName])
			}
		}),
		controller.OnChange(storage.CSINodes().Informer(), func(old, n *storagev1.CSINode) {
			if n != nil && (old == nil || !equality.Semantic.DeepEqual(old.Spec, n.Spec)) {
				c.syncAll()
			}
		}),
		controller.OnChange(core.Nodes().Informer(), func(old, n *v1.Node) {
			// Drivers are asked for their capacities on ready nodes only.
			if old != nil && n != nil && !ready(old) && ready(n) {
				c.publishOn(n.Name)
			}
		}),
	)
}

// publishOn queues the capacities of the drivers of a node.
func (c *Controller) publishOn(node string) {
	n, err := c.csiNodes.Get(node)
	if err != nil {
		return // the drivers are queued when they are registered
	}
	for _, d := range n.Spec.Drivers {
		if c.serves(d.Name) {
			c.capacityQueue.AddPaced(d.Name)
		}
	}
}

// queueAll returns a function that adds all objects in the informer's cache to a queue.
func queueAll(informer cache.SharedIndexInformer, l *controller.Queue) func() {
	return func() {
		for _, o := range informer.GetStore().List() {
			l.AddObject(o)
		}
	}
}

// syncAll queues all objects, because a driver was added or may be reachable again.
func (c *Controller) syncAll() {
	drivers := c.served()
	if len(drivers) == 0 {
		return
	}
	for _, d := range drivers {
		c.capacityQueue.Add(d)
	}
	for _, f := range c.refollow {
		f()
	}
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range []*controller.Queue{c.provisionQueue, c.expandQueue, c.modifyQueue, c.reclaimQueue,
		c.attachQueue, c.capacityQueue} {
		g.Go(func() error { return l.Run(ctx) })
	}
	// Retry periodically, so that objects whose driver did not respond need not wait until their
	// back-off has ended.
	controller.RunEvery(ctx, c.Clock, c.Options.Periods.Attachments, func(context.Context) { c.syncAll() })
	return g.Wait()
}
