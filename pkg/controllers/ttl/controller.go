// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ttl sets an annotation on each node with the time for which the kubelet may cache Secrets
// and ConfigMaps. The time is longer in larger clusters.
package ttl

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "ttl-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue *controller.Queue
	nodes corelisters.NodeLister

	mu    sync.Mutex
	count int // number of nodes
	step  int // index of the present step in steps
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	nodes := d.Informers.Core().V1().Nodes()
	c := &Controller{Deps: d, nodes: nodes.Lister()}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, controller.OnChange(nodes.Informer(), func(old, n *v1.Node) {
		switch {
		case old == nil:
			c.addNodes(1)
		case n == nil:
			c.addNodes(-1)
			return
		}
		c.queue.AddObject(n)
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) addNodes(more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count += more
	c.step = next(c.step, c.count)
}

func (c *Controller) seconds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return steps()[c.step].seconds
}

// step contains the cache time in seconds for clusters with from to `to` nodes.
type step struct{ from, to, seconds int }

// steps returns the steps for all sizes of clusters. The ranges overlap, so that a cluster whose
// size is near a limit does not alternate between two steps.
func steps() []step {
	return []step{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, 1 << 31, 300}}
}

// next returns the index of the step for the given number of nodes. The argument at is the index of
// the present step.
func next(at, nodes int) int {
	all := steps()
	for at < len(all)-1 && nodes > all[at].to {
		at++
	}
	for at > 0 && nodes < all[at].from {
		at--
	}
	return at
}

func (c *Controller) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	want := strconv.Itoa(c.seconds())
	if node.Annotations[v1.ObjectTTLAnnotationKey] == want {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.ObjectTTLAnnotationKey, want)
	_, err = c.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotation: %w", err)
	}
	return nil
}
