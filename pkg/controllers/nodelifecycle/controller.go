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
	"k8s.io/klog/v2"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "node-lifecycle-controller"

const (
	// monitorPeriod is how often it is looked for nodes that have fallen silent.
	monitorPeriod = 5 * time.Second
	// byNode is an index of pods by node.
	byNode = "node"
)

func klogger() klog.Logger { return klog.Background() }

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	nodes    *controller.Loop // conditions to taints, and pods that are not ready any more
	pods     *controller.Loop // evictions
	lister   corelisters.NodeLister
	podCache cache.SharedIndexInformer

	mu    sync.Mutex
	heard map[string]heard // when each node was heard of last
}

// heard is a node's last sign of life.
type heard struct {
	at     time.Time // of this process
	lease  metav1.MicroTime
	status metav1.Time
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core, leases := d.Informers.Core().V1(), d.Informers.Coordination().V1().Leases().Informer()
	c := &Controller{Deps: d, lister: core.Nodes().Lister(), podCache: core.Pods().Informer(), heard: map[string]heard{}}
	c.nodes = controller.NewLoop(Name, d.Clock, d.Log, d.Options.Workers, c.syncNode)
	c.pods = controller.NewLoop(Name+"-evictions", d.Clock, d.Log, d.Options.Workers, c.syncPod)
	return c, errors.Join(
		c.podCache.AddIndexers(cache.Indexers{byNode: func(o any) ([]string, error) {
			if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName != "" {
				return []string{pod.Spec.NodeName}, nil
			}
			return nil, nil
		}}),
		controller.OnChange(core.Nodes().Informer(), c.nodeChanged),
		controller.OnChange(leases, func(_, l *coordinationv1.Lease) {
			if l != nil && l.Namespace == v1.NamespaceNodeLease && l.Spec.RenewTime != nil {
				c.hear(l.Name, func(h *heard) bool {
					fresh := !l.Spec.RenewTime.Equal(&h.lease)
					h.lease = *l.Spec.RenewTime
					return fresh
				})
			}
		}),
		controller.OnChange(c.podCache, func(old, pod *v1.Pod) {
			if pod != nil && pod.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "" || old.Generation != pod.Generation) {
				c.pods.AddObject(pod)
			}
		}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.nodes.Run(ctx) })
	g.Go(func() error { return c.pods.Run(ctx) })
	g.Go(func() error { return c.monitor(ctx) })
	return g.Wait()
}

func (c *Controller) nodeChanged(old, n *v1.Node) {
	if n == nil {
		c.mu.Lock()
		delete(c.heard, old.Name)
		c.mu.Unlock()
		return
	}
	c.hear(n.Name, func(h *heard) bool {
		beat := readyCondition(n).LastHeartbeatTime
		fresh := !beat.Equal(&h.status) && readyCondition(n).Status != v1.ConditionUnknown
		h.status = beat
		return fresh
	})
	c.nodes.Add(n.Name)
	if old == nil || !slices.EqualFunc(old.Spec.Taints, n.Spec.Taints, func(a, b v1.Taint) bool { return a.MatchTaint(&b) }) {
		c.wakePods(n.Name)
	}
}

// hear notes a sign of life; fresh tells whether it is one.
func (c *Controller) hear(node string, fresh func(h *heard) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, known := c.heard[node]
	if fresh(&h) || !known {
		h.at = c.Clock.Now()
	}
	c.heard[node] = h
}

func (c *Controller) wakePods(node string) {
	for _, pod := range c.podsOn(node) {
		c.pods.AddObject(pod)
	}
}

func (c *Controller) podsOn(node string) []*v1.Pod {
	list, err := c.podCache.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil // the index is there
	}
	out := make([]*v1.Pod, 0, len(list))
	for _, o := range list {
		out = append(out, o.(*v1.Pod))
	}
	return out
}

// readyCondition is a node's Ready condition, an empty one when it has none.
func readyCondition(n *v1.Node) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{Type: v1.NodeReady}
}

// monitor looks for nodes that have fallen silent.
func (c *Controller) monitor(ctx context.Context) error {
	t := c.Clock.NewTicker(monitorPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		nodes, err := c.lister.List(labels.Everything())
		if err != nil {
			return fmt.Errorf("nodes: %w", err)
		}
		for _, n := range nodes {
			if readyCondition(n).Status != v1.ConditionTrue {
				c.nodes.Add(n.Name) // whether pods may be evicted depends on other nodes too
			}
			if c.silent(n) {
				if err := c.markUnknown(ctx, n); err != nil && ctx.Err() == nil {
					c.Log.Warn("silent node is not marked", "node", n.Name, "error", err)
				}
			}
		}
	}
}

// silent tells whether a node has not been heard of for its grace period.
func (c *Controller) silent(n *v1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, known := c.heard[n.Name]
	grace := c.Options.NodeGrace
	if readyCondition(n).Status == "" {
		grace = c.Options.NodeStartupGrace
	}
	return known && c.Clock.Since(h.at) > grace
}

// markUnknown says in a node's conditions that nothing is known of it.
func (c *Controller) markUnknown(ctx context.Context, n *v1.Node) error {
	next := n.DeepCopy()
	now := metav1.NewTime(c.Clock.Now())
	changed := false
	for _, t := range []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		i := slices.IndexFunc(next.Status.Conditions, func(o v1.NodeCondition) bool { return o.Type == t })
		switch {
		case i < 0:
			next.Status.Conditions = append(next.Status.Conditions, v1.NodeCondition{
				Type: t, Status: v1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: now,
			})
			changed = true
		case next.Status.Conditions[i].Status != v1.ConditionUnknown:
			cond := &next.Status.Conditions[i]
			cond.Status, cond.Reason, cond.Message, cond.LastTransitionTime = v1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", now
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if _, err := c.Client.CoreV1().Nodes().UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// allSilent tells whether no node is known to be well or ill.
func (c *Controller) allSilent() bool {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return true
	}
	return !slices.ContainsFunc(nodes, func(n *v1.Node) bool { return readyCondition(n).Status == v1.ConditionTrue })
}

// syncNode keeps a node's taints, and its pods' readiness, in line with its conditions.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	n, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	taints, changed := merge(n.Spec.Taints, wanted(n, c.mayEvict(n)), c.Clock.Now())
	if changed {
		next := n.DeepCopy()
		next.Spec.Taints = taints
		if _, err := c.Client.CoreV1().Nodes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("taints: %w", err)
		}
	}
	if s := readyCondition(n).Status; s == v1.ConditionFalse || s == v1.ConditionUnknown {
		return c.markPods(ctx, n)
	}
	return nil
}

// mayEvict tells whether pods may be evicted from a node. One that has them
// evicted already stays so until it is well.
func (c *Controller) mayEvict(n *v1.Node) bool {
	return !c.allSilent() || slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute && ours(t)
	})
}

// markPods says of the pods on a node that is not ready that they are not either.
func (c *Controller) markPods(ctx context.Context, n *v1.Node) error {
	var errs []error
	for _, pod := range c.podsOn(n.Name) {
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

// syncPod evicts a pod that has not tolerated its node's taints for long enough.
func (c *Controller) syncPod(ctx context.Context, key string) error {
	o, there, err := c.podCache.GetIndexer().GetByKey(key)
	if err != nil || !there {
		return err
	}
	pod := o.(*v1.Pod)
	n, err := c.lister.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil {
		return nil
	}
	if err != nil {
		return err
	}
	now := c.Clock.Now()
	at, leaves := evictAt(n.Spec.Taints, pod.Spec.Tolerations, now)
	if !leaves {
		return nil
	}
	if left := at.Sub(now); left > 0 {
		c.pods.AddAfter(key, left)
		return nil
	}
	return c.evict(ctx, pod)
}

func (c *Controller) evict(ctx context.Context, pod *v1.Pod) error {
	c.Events.Eventf(pod, v1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	if cond := controller.Condition(pod, v1.DisruptionTarget); cond == nil || cond.Status != v1.ConditionTrue {
		next := pod.DeepCopy()
		next.Status.Conditions = append(slices.DeleteFunc(next.Status.Conditions, func(o v1.PodCondition) bool { return o.Type == v1.DisruptionTarget }),
			v1.PodCondition{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
				LastTransitionTime: metav1.NewTime(c.Clock.Now()), ObservedGeneration: pod.Generation,
			})
		if _, err := c.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("condition: %w", err)
		}
	}
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("evict: %w", err)
	}
	return nil
}
