// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgc deletes pods that no other component deletes: pods on nodes that do not exist or
// are out of service, pods that are being deleted and have no node, and the oldest ended pods if
// there are more than the limit.
package podgc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "pod-garbage-collector-controller"

const (
	period = 20 * time.Second
	// quarantine is how long a node must be missing before its pods are deleted.
	quarantine = 40 * time.Second
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	metrics *metrics
	missing map[string]time.Time // when each missing node was first found to be missing, by name
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	return &Controller{Deps: d, pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
		metrics: newMetrics(d.Metrics), missing: map[string]time.Time{}}, nil
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	collect := func(ctx context.Context) {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("Failed to delete orphaned or ended pods", "err", err)
		}
	}
	collect(ctx)
	controller.RunEvery(ctx, c.Clock, period, collect)
	return nil
}

func (c *Controller) sweep(ctx context.Context) error {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	var errs []error
	missing, ended := map[string]bool{}, []*v1.Pod(nil)
	for _, pod := range pods {
		switch {
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil: // also if the pod has scheduling gates
			errs = append(errs, c.metrics.deleted(pod, unscheduled, c.fail(ctx, pod, nil)))
		case pod.Spec.NodeName != "" && c.nodeMissing(ctx, pod.Spec.NodeName, missing):
			errs = append(errs, c.metrics.deleted(pod, orphaned, c.fail(ctx, pod, c.orphaned(pod))))
		case pod.DeletionTimestamp != nil && c.outOfService(pod.Spec.NodeName):
			errs = append(errs, c.metrics.deleted(pod, outOfService, c.fail(ctx, pod, nil)))
		case hasEnded(pod) && markedForRemoval(pod):
			// Always delete a pod that this controller has marked for removal: it does not count as
			// one of the ended pods to keep.
			errs = append(errs, c.metrics.deleted(pod, orphaned, c.remove(ctx, pod)))
		case hasEnded(pod):
			ended = append(ended, pod)
		}
	}
	for node := range c.missing {
		if !missing[node] {
			delete(c.missing, node)
		}
	}
	for _, pod := range surplus(ended, c.Options.EndedPods) {
		errs = append(errs, c.metrics.deleted(pod, terminated, c.remove(ctx, pod)))
	}
	return errors.Join(errs...)
}

// hasEnded reports whether a pod's phase is Succeeded or Failed.
func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// surplus returns the ended pods to delete so that a number of them (the argument keep) remain:
// evicted pods first, then the oldest ones. If this number is 0 or negative, all pods remain.
func surplus(ended []*v1.Pod, keep int) []*v1.Pod {
	if keep <= 0 || len(ended) <= keep {
		return nil
	}
	evicted := func(pod *v1.Pod) int {
		if pod.Status.Reason == "Evicted" {
			return 0
		}
		return 1
	}
	slices.SortFunc(ended, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(evicted(a), evicted(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return ended[:len(ended)-keep]
}

// outOfService reports whether a node is not ready and an administrator has added the
// out-of-service taint, which declares that the node is shut down.
func (c *Controller) outOfService(name string) bool {
	node, err := c.nodes.Get(name)
	if err != nil || !slices.ContainsFunc(node.Spec.Taints,
		func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService }) {
		return false
	}
	return !slices.ContainsFunc(node.Status.Conditions,
		func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

// nodeMissing reports whether a node has been missing in the informer's cache for the time
// quarantine and does not exist on the API server either. If the cache does not show the node, it
// adds the node to the map seen.
func (c *Controller) nodeMissing(ctx context.Context, name string, seen map[string]bool) bool {
	if _, err := c.nodes.Get(name); !apierrors.IsNotFound(err) {
		return false
	}
	seen[name] = true
	since, known := c.missing[name]
	if !known {
		c.missing[name] = c.Clock.Now()
		return false
	}
	if c.Clock.Since(since) < quarantine {
		return false
	}
	_, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

const reasonOrphaned = "DeletionByPodGC"

// markedForRemoval reports whether this controller has marked the pod as failed in order to delete
// it.
func markedForRemoval(pod *v1.Pod) bool {
	c := controller.Condition(pod, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue && c.Reason == reasonOrphaned
}

// orphaned returns the DisruptionTarget condition for a pod that is deleted because its node does
// not exist any more.
func (c *Controller) orphaned(pod *v1.Pod) *v1.PodCondition {
	return &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: reasonOrphaned, Message: "PodGC: node no longer exists",
		LastTransitionTime: metav1.NewTime(c.Clock.Now()), ObservedGeneration: pod.Generation,
	}
}

// fail sets the phase of a pod to Failed and deletes it, because no kubelet will do that. If
// condition is not nil, it also sets this condition.
func (c *Controller) fail(ctx context.Context, pod *v1.Pod, condition *v1.PodCondition) error {
	if hasEnded(pod) {
		return c.remove(ctx, pod)
	}
	status := map[string]any{"phase": v1.PodFailed}
	if condition != nil {
		status["conditions"] = []*v1.PodCondition{condition}
	}
	// Because the patch contains the UID, it cannot change another pod of the same name. The
	// controller has the permission to patch the status, but not to update it.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return c.remove(ctx, pod)
}

// remove deletes a pod with a grace period of zero.
func (c *Controller) remove(ctx context.Context, pod *v1.Pod) error {
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
