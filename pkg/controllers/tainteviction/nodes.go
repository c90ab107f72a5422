// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// NodesName is the name of the controller of nodes' taints.
const NodesName = "taint-eviction-controller"

type nodes struct {
	controller.Deps
	queue   *controller.Queue
	lister  corelisters.NodeLister
	pods    cache.SharedIndexInformer
	seen    *sightings
	metrics *metrics
}

// NewNodes returns the controller that deletes pods because of taints of their nodes.
func NewNodes(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	c := &nodes{Deps: d, lister: core.Nodes().Lister(), pods: core.Pods().Informer(), seen: newSightings(),
		metrics: newNodeMetrics(d.Metrics)}
	c.queue = controller.NewQueue(NodesName, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByNode(c.pods),
		controller.OnChange(core.Nodes().Informer(), c.nodeChanged),
		controller.OnChange(c.pods, c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *nodes) Run(ctx context.Context) error { return c.queue.Run(ctx) }

// podChanged queues a pod that is new on its node or whose tolerations may have changed.
func (c *nodes) podChanged(old, pod *v1.Pod) {
	if pod != nil && pod.Spec.NodeName != "" && (old == nil || old.UID != pod.UID ||
		old.Spec.NodeName == "" || old.Generation != pod.Generation) {
		c.queue.AddObject(pod)
	}
}

func (c *nodes) nodeChanged(old, n *v1.Node) {
	if n == nil {
		c.seen.forget(old.Name)
		return
	}
	c.seen.record(n, c.Clock.Now())
	if old == nil || !equality.Semantic.DeepEqual(old.Spec.Taints, n.Spec.Taints) {
		for _, pod := range controller.PodsOnNode(c.pods, n.Name) {
			c.queue.AddObject(pod)
		}
	}
}

func (c *nodes) sync(ctx context.Context, key string) error {
	o, there, err := c.pods.GetIndexer().GetByKey(key)
	if err != nil || !there {
		return err
	}
	pod := o.(*v1.Pod)
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		return nil
	}
	n, err := c.lister.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	now := c.Clock.Now()
	at, leaves := evictAt(pod, n.Spec.Taints, func(t *v1.Taint) time.Time { return c.seen.since(n.Name, t, now) })
	if !leaves {
		return nil
	}
	if left := at.Sub(now); left > 0 {
		c.queue.AddAfter(key, left)
		return nil
	}
	if err := c.evict(ctx, pod); err != nil {
		return err
	}
	c.metrics.deleted(c.Clock.Since(at))
	return nil
}

func (c *nodes) evict(ctx context.Context, pod *v1.Pod) error {
	c.Events.Eventf(pod, v1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s",
		pod.Namespace, pod.Name)
	return controller.Evict(ctx, c.Client, pod, "DeletionByTaintManager",
		"Taint manager: deleting due to NoExecute taint", c.Clock.Now())
}
