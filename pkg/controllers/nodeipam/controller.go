// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeipam gives every node a range of the cluster's addresses for its
// pods, one of each family. A range belongs to its node as long as the node
// exists, and to nobody else.
package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "node-ipam-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	loop  *controller.Loop
	nodes corelisters.NodeLister

	mu   sync.Mutex // one node gets its ranges at a time
	sets []*ranges
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	nodes := d.Informers.Core().V1().Nodes()
	c := &Controller{Deps: d, nodes: nodes.Lister()}
	for i, prefix := range d.Options.ClusterCIDRs {
		set, err := newRanges(prefix, d.Options.NodeMasks[i])
		if err != nil {
			return nil, err
		}
		for _, services := range d.Options.ServiceCIDRs {
			set.occupy(services)
		}
		c.sets = append(c.sets, set)
	}
	c.loop = controller.NewLoop(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(nodes.Informer(), func(old, node *v1.Node) {
		if node == nil {
			c.release(old)
			return
		}
		switch {
		case len(node.Spec.PodCIDRs) == 0:
			c.loop.Add(node.Name)
		case old == nil || !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs):
			c.take(node) // somebody else may have given it
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	// What nodes have already is taken before anything new is given.
	for _, n := range nodes {
		c.take(n)
	}
	return c.loop.Run(ctx)
}

// take keeps what a node has from being given to another.
func (c *Controller) take(n *v1.Node) {
	if err := c.occupy(n.Spec.PodCIDRs); err != nil {
		c.Log.Error("node has a range that is no part of the cluster's", "node", n.Name, "error", err)
	}
}

func (c *Controller) occupy(cidrs []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for i, text := range cidrs {
		p, err := netip.ParsePrefix(text)
		if err == nil && i < len(c.sets) {
			c.sets[i].occupy(p)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Controller) release(node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && i < len(c.sets) {
			c.sets[i].release(p)
		}
	}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && len(node.Spec.PodCIDRs) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var given []string
	undo := func() {
		for i, text := range given {
			c.sets[i].release(netip.MustParsePrefix(text))
		}
	}
	for _, set := range c.sets {
		p, err := set.next()
		if err != nil {
			undo()
			c.Events.Event(node, v1.EventTypeNormal, "CIDRNotAvailable", "Node "+name+" status is now: CIDRNotAvailable")
			return fmt.Errorf("range for node %s: %w", name, err)
		}
		given = append(given, p.String())
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"spec":     map[string]any{"podCIDR": given[0], "podCIDRs": given},
	})
	if err == nil {
		_, err = c.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	}
	if err != nil {
		// Whether the server has taken it or not, is seen when it answers again.
		fresh, getErr := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if getErr != nil || len(fresh.Spec.PodCIDRs) == 0 || fresh.Spec.PodCIDRs[0] != given[0] {
			if getErr == nil || apierrors.IsNotFound(getErr) {
				undo()
			}
			return fmt.Errorf("give node %s its range: %w", name, err)
		}
	}
	return nil
}
