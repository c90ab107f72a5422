// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "persistentvolume-attach-detach-controller"

// Names of the indexes that this controller adds.
const (
	byNode   = "attachdetach-node"   // pods with claims, and VolumeAttachments, by node name
	bySource = "attachdetach-source" // VolumeAttachments by name of the PersistentVolume
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue       *controller.Queue
	nodes       corelisters.NodeLister
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	drivers     storagelisters.CSIDriverLister
	pods        cache.Indexer
	attachments cache.Indexer
	metrics     *metrics
	// targets are the volumes of the attachments of each node, by name of the attachment. They are needed
	// if a PersistentVolume is deleted before its volume is detached. Only sync uses them.
	targets map[string]map[string]target

	mu sync.Mutex
	// lost are the volumes that deleted nodes reported as in use in their last status, by node
	// name.
	lost map[string][]v1.UniqueVolumeName
	// made contains the attachments that this controller has created but that the cache does not
	// show yet, by name.
	made map[string]createdAttachment
	// since is the time at which a sync first found that no pod on a node needs a volume any more,
	// by node name and volume.
	since map[string]map[v1.UniqueVolumeName]time.Time
}

// createdAttachment is an attachment that the controller has sent to the API server. Its resource
// version is empty until the response confirms that it was created.
type createdAttachment struct {
	attachment *storagev1.VolumeAttachment
	at         time.Time
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core, storage := d.Informers.Core().V1(), d.Informers.Storage().V1()
	pods, attachments := core.Pods().Informer(), storage.VolumeAttachments().Informer()
	c := &Controller{
		Deps: d, nodes: core.Nodes().Lister(), claims: core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
		drivers: storage.CSIDrivers().Lister(), pods: pods.GetIndexer(), attachments: attachments.GetIndexer(),
		targets: map[string]map[string]target{},
		lost:    map[string][]v1.UniqueVolumeName{}, made: map[string]createdAttachment{},
		since: map[string]map[v1.UniqueVolumeName]time.Time{}, metrics: newMetrics(d.Metrics),
	}
	if d.Metrics != nil {
		if err := d.Metrics.Register(newTotals(c)); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	// Use one worker, because the decision for a node depends on what was decided for other nodes
	// just before.
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, 1, c.sync)
	return c, errors.Join(
		controller.IndexByClaim(pods),
		pods.AddIndexers(cache.Indexers{byNode: nodeOfPod}),
		attachments.AddIndexers(cache.Indexers{byNode: nodeOfAttachment, bySource: sourceOfAttachment}),
		controller.OnChange(pods, c.podChanged),
		controller.OnChange(attachments, c.attachmentChanged),
		controller.OnChange(core.Nodes().Informer(), c.nodeChanged),
		controller.OnChange(core.PersistentVolumeClaims().Informer(), func(old, claim *v1.PersistentVolumeClaim) {
			if old == nil || claim == nil || old.Spec.VolumeName != claim.Spec.VolumeName ||
				old.Status.Phase != claim.Status.Phase {
				c.queueUsers(controller.Key(controller.Latest(old, claim)))
			}
		}),
		controller.OnChange(core.PersistentVolumes().Informer(), func(old, v *v1.PersistentVolume) {
			if ref := controller.Latest(old, v).Spec.ClaimRef; ref != nil &&
				(old == nil || v == nil || !equality.Semantic.DeepEqual(old.Spec, v.Spec)) {
				c.queueUsers(ref.Namespace + "/" + ref.Name)
			}
		}),
		controller.OnChange(storage.CSIDrivers().Informer(), func(_, _ *storagev1.CSIDriver) { c.queueAll() }),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error {
		controller.RunEvery(ctx, c.Clock, c.Options.Periods.Attachments, func(context.Context) { c.queueAll() })
		return nil
	})
	return g.Wait()
}

func nodeOfPod(o any) ([]string, error) {
	if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName != "" && len(controller.ClaimKeys(pod)) > 0 {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

func nodeOfAttachment(o any) ([]string, error) {
	if a, ok := o.(*storagev1.VolumeAttachment); ok {
		return []string{a.Spec.NodeName}, nil
	}
	return nil, nil
}

func sourceOfAttachment(o any) ([]string, error) {
	if a, ok := o.(*storagev1.VolumeAttachment); ok && a.Spec.Source.PersistentVolumeName != nil {
		return []string{*a.Spec.Source.PersistentVolumeName}, nil
	}
	return nil, nil
}

func (c *Controller) podChanged(old, pod *v1.Pod) {
	if old != nil && pod != nil && old.Spec.NodeName == pod.Spec.NodeName && ended(old) == ended(pod) {
		return
	}
	for _, p := range []*v1.Pod{old, pod} {
		if p != nil && p.Spec.NodeName != "" && len(controller.ClaimKeys(p)) > 0 {
			c.queue.Add(p.Spec.NodeName)
		}
	}
}

func (c *Controller) attachmentChanged(old, a *storagev1.VolumeAttachment) {
	c.mu.Lock()
	delete(c.made, controller.Latest(old, a).Name)
	c.mu.Unlock()
	c.metrics.observe(old, a, c.Clock.Now())
	c.queue.Add(controller.Latest(old, a).Spec.NodeName)
	if old != nil && a != nil {
		c.reportFailure(old, a)
	}
	if a != nil {
		return
	}
	// The attachment was deleted. A pod on another node may wait for the volume.
	sources, err := sourceOfAttachment(old)
	if err != nil {
		return // cannot happen: sourceOfAttachment returns no errors
	}
	for _, name := range sources {
		if v, err := c.volumes.Get(name); err == nil && v.Spec.ClaimRef != nil {
			c.queueUsers(v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name)
		}
	}
}

func (c *Controller) nodeChanged(old, node *v1.Node) {
	c.mu.Lock()
	if node == nil {
		c.lost[old.Name] = old.Status.VolumesInUse
	} else {
		delete(c.lost, node.Name)
	}
	c.mu.Unlock()
	if old != nil && node != nil && slices.Equal(old.Status.VolumesInUse, node.Status.VolumesInUse) &&
		equality.Semantic.DeepEqual(old.Status.VolumesAttached, node.Status.VolumesAttached) &&
		outOfService(old) == outOfService(node) && ready(old) == ready(node) {
		return
	}
	c.queue.Add(controller.Latest(old, node).Name)
}

// queueUsers queues the nodes of the pods that use the claim with the given key.
func (c *Controller) queueUsers(claim string) {
	pods, err := controller.PodsOfClaim(c.pods, claim)
	if err != nil {
		return // cannot happen: New has added the index
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			c.queue.Add(pod.Spec.NodeName)
		}
	}
}

func (c *Controller) queueAll() {
	for _, i := range []cache.Indexer{c.pods, c.attachments} {
		for _, node := range i.ListIndexFuncValues(byNode) {
			c.queue.Add(node)
		}
	}
}

// reportFailure writes events on the pods that wait for a volume if the attacher has reported a new
// error. The events contain the error.
func (c *Controller) reportFailure(old, a *storagev1.VolumeAttachment) {
	e := a.Status.AttachError
	if e == nil || old.Status.AttachError != nil && old.Status.AttachError.Message == e.Message {
		return
	}
	for _, w := range c.wantedOn(a.Spec.NodeName) {
		if w.target.attachment(a.Spec.NodeName) != a.Name {
			continue
		}
		c.reportFailed(w, e.Message)
	}
}
