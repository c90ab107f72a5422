// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeipam assigns each node a range of the cluster's pod addresses, one for each address
// family. A node keeps its range until it is deleted, and no other node gets the range before.
//
// A range that another client set on a node is not assigned to other nodes. If such a range is not
// inside the cluster's ranges, or an older node has the same range, the controller records an
// event, and nodes do not route to it (package nodeclaims).
package nodeipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/nodeclaims"
)

// Name is the controller's name.
const Name = "node-ipam-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue   *controller.Queue
	nodes   corelisters.NodeLister
	metrics *metrics

	mu   sync.Mutex
	sets []*ranges
	// promised are the ranges that were assigned to nodes but that the cache does not show yet, by
	// the node's UID. If such a node is synced again, it gets the same ranges.
	promised map[types.UID][]string
	// refused are the UIDs of the nodes for which the event about a rejected range was recorded.
	refused map[types.UID]bool
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	nodes := d.Informers.Core().V1().Nodes()
	c := &Controller{Deps: d, nodes: nodes.Lister(), metrics: newMetrics(d.Metrics),
		promised: map[types.UID][]string{}, refused: map[types.UID]bool{}}
	for i, prefix := range d.Options.ClusterCIDRs {
		set, err := newRanges(prefix, d.Options.NodeMasks[i], c.metrics)
		if err != nil {
			return nil, err
		}
		for _, p := range d.Options.ServiceCIDRs {
			set.occupy(p, services)
		}
		c.sets = append(c.sets, set)
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(nodes.Informer(), func(old, node *v1.Node) {
		if old != nil && (node == nil || old.UID != node.UID) {
			c.release(old)
			old = nil
		}
		switch {
		case node == nil:
		case len(node.Spec.PodCIDRs) == 0:
			c.queue.Add(node.Name)
		case old == nil || !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs):
			c.take(node) // another client may have set the range, so mark it as taken
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	c.metrics.running.Set(1)
	defer c.metrics.running.Set(0)
	// Mark the ranges of all nodes as taken before any new range is assigned. List the nodes from
	// the API server, because the cache may not show yet what an earlier process assigned.
	for ctx.Err() == nil {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				c.take(&list.Items[i])
			}
			break
		}
		c.Log.Warn("Failed to list nodes", "err", err)
		select {
		case <-ctx.Done():
		case <-c.Clock.After(retry):
		}
	}
	return c.queue.Run(ctx)
}

// retry is the pause after a failed attempt to list the nodes.
const retry = time.Second

// take marks the ranges of a node as taken. If the node may not use them, it records an event.
func (c *Controller) take(n *v1.Node) {
	if len(n.Spec.PodCIDRs) > 0 {
		c.withdraw(n.UID, n.Spec.PodCIDRs)
	}
	if c.occupy(n) {
		return
	}
	list, err := c.nodes.List(labels.Everything())
	if err != nil {
		c.Log.Error("Failed to list nodes", "err", err)
		return
	}
	c.refuse(list)
}

// refuse records an event for each node that has a range of pod addresses which it may not use.
func (c *Controller) refuse(nodes []*v1.Node) {
	by, claims := map[string]*v1.Node{}, make([]nodeclaims.Claim, len(nodes))
	for i, n := range nodes {
		by[n.Name], claims[i] = n, nodeclaims.Of(n)
	}
	_, refused := nodeclaims.Settle(claims, c.Options.ClusterCIDRs)
	for _, r := range refused {
		n := by[r.Node]
		if !slices.Contains(nodeclaims.Of(n).PodRanges, r.What) || !c.firstRefusal(n.UID) {
			continue // not a pod range, so not this controller's concern
		}
		c.Log.Warn("Pod range of node rejected", "node", n.Name, "range", r.What, "reason", r.Cause)
		c.Events.Eventf(n, v1.EventTypeWarning, "PodCIDRRejected",
			"The pod range %s is not routed: %s. Delete the Node so that it registers again without the range", r.What, r.Cause)
	}
}

// firstRefusal reports whether it is called for the first time for a node.
func (c *Controller) firstRefusal(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.refused[uid]
	c.refused[uid] = true
	return !before
}

// occupy marks a node's ranges as taken. It reports whether all of them are inside the cluster's
// ranges and no other node has them.
func (c *Controller) occupy(n *v1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	alone := true
	for i, text := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		alone = err == nil && i < len(c.sets) && c.sets[i].occupy(p, n.UID) && alone
	}
	return alone
}

// withdraw forgets the ranges that the controller has chosen for a node (promised). The last
// argument has the ranges in the Node object; the other chosen ranges become free.
func (c *Controller) withdraw(uid types.UID, has []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	given := c.promised[uid]
	delete(c.promised, uid)
	for i, text := range given {
		if i >= len(has) || has[i] != text {
			c.sets[i].release(netip.MustParsePrefix(text), uid)
		}
	}
}

// release makes the pod address ranges of a deleted node free.
func (c *Controller) release(node *v1.Node) {
	c.withdraw(node.UID, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.refused, node.UID)
	for i, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && i < len(c.sets) {
			c.sets[i].release(p, node.UID)
		}
	}
}

// promise chooses free ranges for a node, marks them as taken, and records them in c.promised. If
// ranges are already recorded there for the node, it returns those.
func (c *Controller) promise(uid types.UID) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if given, before := c.promised[uid]; before {
		return given, nil
	}
	var given []string
	for _, set := range c.sets {
		p, err := set.next(uid)
		if err != nil {
			for i, text := range given {
				c.sets[i].release(netip.MustParsePrefix(text), uid)
			}
			return nil, err
		}
		given = append(given, p.String())
	}
	c.promised[uid] = given
	return given, nil
}

func (c *Controller) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && len(node.Spec.PodCIDRs) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	given, err := c.promise(node.UID)
	if err != nil {
		c.Events.Event(node, v1.EventTypeNormal, "CIDRNotAvailable", "Node "+name+" status is now: CIDRNotAvailable")
		return fmt.Errorf("range for node %s: %w", name, err)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"spec":     map[string]any{"podCIDR": given[0], "podCIDRs": given},
	})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = c.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		// Keep the promised ranges, because the server may have stored them. They are released when
		// the node is deleted or shows other ranges.
		return fmt.Errorf("write the pod range of node %s: %w", name, err)
	}
	if _, err := c.nodes.Get(name); apierrors.IsNotFound(err) {
		c.withdraw(node.UID, nil) // the node was deleted in the meantime, and no event will release the ranges
	}
	return nil
}
