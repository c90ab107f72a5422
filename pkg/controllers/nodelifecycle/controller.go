// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "node-lifecycle-controller"

// monitorPeriod is the interval at which the controller looks for nodes without heartbeats.
const monitorPeriod = 5 * time.Second

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue    *controller.Queue // keys are names of nodes; see sync
	lister   corelisters.NodeLister
	podCache cache.SharedIndexInformer
	zones    *zones
	metrics  *metrics

	mu         sync.Mutex
	heartbeats map[string]heartbeat // by node name
}

// heartbeat describes the last heartbeat of a node: the last change of its Lease or its status.
type heartbeat struct {
	at     time.Time // when this process saw the heartbeat, by its own clock
	lease  metav1.MicroTime
	status metav1.Time
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core, leases := d.Informers.Core().V1(), d.Informers.Coordination().V1().Leases().Informer()
	c := &Controller{Deps: d, lister: core.Nodes().Lister(), podCache: core.Pods().Informer(),
		heartbeats: map[string]heartbeat{}, metrics: newMetrics(d.Metrics)}
	c.zones = newZones(d.Options.Evictions, c.metrics)
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	return c, errors.Join(
		controller.IndexByNode(c.podCache),
		controller.OnChange(core.Nodes().Informer(), c.nodeChanged),
		controller.OnChange(leases, func(_, l *coordinationv1.Lease) {
			if l != nil && l.Namespace == v1.NamespaceNodeLease && l.Spec.RenewTime != nil {
				c.recordHeartbeat(l.Name, func(h *heartbeat) bool {
					fresh := !l.Spec.RenewTime.Equal(&h.lease)
					h.lease = *l.Spec.RenewTime
					return fresh
				})
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error { controller.RunEvery(ctx, c.Clock, monitorPeriod, c.monitor); return nil })
	return g.Wait()
}

func (c *Controller) nodeChanged(old, n *v1.Node) {
	if n == nil {
		c.mu.Lock()
		delete(c.heartbeats, old.Name)
		c.mu.Unlock()
		c.Events.Eventf(old, v1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", old.Name,
			old.Name)
		return
	}
	if old == nil {
		c.Events.Eventf(n, v1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", n.Name,
			n.Name)
	}
	c.recordHeartbeat(n.Name, func(h *heartbeat) bool {
		beat := controller.NodeReady(n).LastHeartbeatTime
		fresh := !beat.Equal(&h.status) && controller.NodeReady(n).Status != v1.ConditionUnknown
		h.status = beat
		return fresh
	})
	c.queue.Add(n.Name)
}

// recordHeartbeat records the time if a node has sent a heartbeat. The function fresh stores the
// node's present state in h and reports whether it differs from the state before, which means that
// there is a new heartbeat.
func (c *Controller) recordHeartbeat(node string, fresh func(h *heartbeat) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, known := c.heartbeats[node]
	if fresh(&h) || !known {
		h.at = c.Clock.Now()
	}
	c.heartbeats[node] = h
}

// monitor updates the state of the zones, queues the nodes that are not ready, and marks nodes
// without heartbeats as unknown.
func (c *Controller) monitor(ctx context.Context) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	began := c.Clock.Now()
	if c.zones.update(nodes, began) {
		c.restartGrace()
	}
	for _, n := range nodes {
		nodeBegan := c.Clock.Now()
		if controller.NodeReady(n).Status != v1.ConditionTrue {
			// Sync the node although it has not changed: whether its pods may be evicted also
			// depends on other nodes.
			c.queue.Add(n.Name)
		}
		if c.isSilent(n) {
			if err := c.markUnknown(ctx, n); err != nil && ctx.Err() == nil {
				c.Log.Warn("Failed to set the conditions of a node to Unknown", "node", n.Name, "err", err)
			}
		}
		c.metrics.oneNode.Observe(c.Clock.Since(nodeBegan).Seconds())
	}
	c.metrics.allNodes.Observe(c.Clock.Since(began).Seconds())
}

// restartGrace restarts the grace period of all nodes. It is called when some nodes are ready again
// after no node was ready. In this case the control plane was probably cut off from the nodes, so
// the nodes may have sent the heartbeats that are missing.
func (c *Controller) restartGrace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	for name, h := range c.heartbeats {
		h.at = now
		c.heartbeats[name] = h
	}
}

// isSilent reports whether the last heartbeat of a node is longer ago than its grace period.
func (c *Controller) isSilent(n *v1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, known := c.heartbeats[n.Name]
	grace := c.Options.NodeGrace
	if controller.NodeReady(n).Status == "" {
		grace = c.Options.NodeStartupGrace
	}
	return known && c.Clock.Since(h.at) > grace
}

// markUnknown sets the conditions of a node that the kubelet normally reports to Unknown.
func (c *Controller) markUnknown(ctx context.Context, n *v1.Node) error {
	next := n.DeepCopy()
	now := metav1.NewTime(c.Clock.Now())
	changed := false
	for _, t := range []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure,
		v1.NodePIDPressure} {
		i := slices.IndexFunc(next.Status.Conditions, func(o v1.NodeCondition) bool { return o.Type == t })
		switch {
		case i < 0:
			next.Status.Conditions = append(next.Status.Conditions, v1.NodeCondition{
				Type: t, Status: v1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
				Message:           "Kubelet never posted node status.",
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: now,
			})
			changed = true
		case next.Status.Conditions[i].Status != v1.ConditionUnknown:
			cond := &next.Status.Conditions[i]
			cond.Status, cond.Reason, cond.Message, cond.LastTransitionTime = v1.ConditionUnknown,
				"NodeStatusUnknown", "Kubelet stopped posting node status.", now
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if renewed, err := c.renewed(ctx, n.Name); renewed || err != nil {
		return err
	}
	_, err := c.Client.CoreV1().Nodes().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	// A kubelet that reports that its node is not ready records the event itself.
	if controller.NodeReady(n).Status == v1.ConditionTrue {
		c.Events.Eventf(n, v1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", n.Name)
	}
	return nil
}

// renewed reports whether a node has renewed its Lease since the last heartbeat that this process has
// seen. It reads the Lease from the server, because a watch that lags behind would otherwise make
// the controller evict the pods of healthy nodes. The watch reports the heartbeat later.
func (c *Controller) renewed(ctx context.Context, node string) (bool, error) {
	lease, err := c.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lease: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.heartbeats[node].lease
	return lease.Spec.RenewTime != nil && !lease.Spec.RenewTime.Equal(&seen), nil
}

// sync sets a node's taints according to its conditions, and marks its pods as not ready if the
// node is not ready.
func (c *Controller) sync(ctx context.Context, name string) error {
	n, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	taints, changed := mergeTaints(n.Spec.Taints, wantedTaints(n, c.mayEvict(n)), c.Clock.Now())
	if changed {
		next := n.DeepCopy()
		next.Spec.Taints = taints
		if _, err := c.Client.CoreV1().Nodes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("taints: %w", err)
		}
		if isEvicting(next) && !isEvicting(n) {
			c.metrics.evictions.WithLabelValues(zoneOf(n)).Inc()
		}
	}
	if s := controller.NodeReady(n).Status; s == v1.ConditionFalse || s == v1.ConditionUnknown {
		return c.markPods(ctx, n)
	}
	return nil
}

// mayEvict reports whether the node n may get a taint that evicts its pods. It may if it is not
// ready and the rate of its zone allows it. A node that has such a taint keeps it until it is
// ready, unless no node in the cluster is ready.
func (c *Controller) mayEvict(n *v1.Node) bool {
	if controller.NodeReady(n).Status == v1.ConditionTrue || c.zones.stopped() {
		return false
	}
	return isEvicting(n) || c.zones.take(n, c.Clock.Now())
}

// markPods sets the Ready condition of all pods on a node to False.
func (c *Controller) markPods(ctx context.Context, n *v1.Node) error {
	var errs []error
	for _, pod := range controller.PodsOnNode(c.podCache, n.Name) {
		if !controller.Ready(pod) {
			continue
		}
		next := pod.DeepCopy()
		cond := controller.Condition(next, v1.PodReady)
		cond.Status, cond.LastTransitionTime = v1.ConditionFalse, metav1.NewTime(c.Clock.Now())
		_, err := c.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("readiness of %s: %w", pod.Name, err))
			continue
		}
		c.Events.Event(pod, v1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return errors.Join(errs...)
}
