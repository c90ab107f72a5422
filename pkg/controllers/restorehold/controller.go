// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restorehold releases held pods after a restore of the cluster, as soon as the cluster waits for
// no node. Until then it writes into the pods without a node for which nodes they wait. It also deletes
// Nodes that the restore has created, once they are reported, so that their kubelets register again.
//
// Package keelson.dev/keelson/pkg/restorehold describes the labels. All state is in them.
package restorehold

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/restorehold"
)

// Name is the controller's name.
const Name = "restore-hold-controller"

// everyPod is the key for all held pods. Other keys are names of nodes, and keys of pods, which contain a
// slash.
const everyPod = ""

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue *controller.Queue
	nodes corelisters.NodeLister
	pods  corelisters.PodLister
	held  labels.Selector

	// The nodes for which the cluster waits. nodeChanged forgets them before it queues pods. A list of nodes
	// is kept only under the mutex, so that it is never older than the last change.
	mu      sync.Mutex
	known   bool
	message string // restorehold.Message of the nodes; "" if there are none
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	held, err := labels.NewRequirement(restorehold.Held, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selector of held pods: %w", err)
	}
	nodes, pods := d.Informers.Core().V1().Nodes(), d.Informers.Core().V1().Pods()
	c := &Controller{Deps: d, nodes: nodes.Lister(), pods: pods.Lister(), held: labels.NewSelector().Add(*held)}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	if err := controller.OnChange(nodes.Informer(), c.nodeChanged); err != nil {
		return nil, err
	}
	return c, controller.OnChange(pods.Informer(), func(_, pod *v1.Pod) {
		if pod != nil && restorehold.IsHeld(pod) {
			c.queue.AddObject(pod)
		}
	})
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error { return c.queue.Run(ctx) }

func (c *Controller) nodeChanged(old, node *v1.Node) {
	if (old != nil && restorehold.Waiting(old)) != (node != nil && restorehold.Waiting(node)) {
		c.mu.Lock()
		c.known = false
		c.mu.Unlock()
		c.queue.AddPaced(everyPod)
	}
	if node != nil && isReportedPlaceholder(node) {
		c.queue.Add(node.Name)
	}
}

func isReportedPlaceholder(node *v1.Node) bool {
	_, placeholder := node.Annotations[restorehold.Placeholder]
	_, unreported := node.Labels[restorehold.Unreported]
	return placeholder && !unreported
}

func (c *Controller) sync(ctx context.Context, key string) error {
	if key != everyPod && !strings.Contains(key, "/") {
		return c.syncNode(ctx, key)
	}
	message, err := c.waiting()
	if err != nil {
		return err
	}
	if key == everyPod {
		return c.queuePods(message != "")
	}
	return c.syncPod(ctx, key, message)
}

// waiting says for which nodes held pods wait. It returns "" if the cluster waits for no node.
func (c *Controller) waiting() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		return c.message, nil
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("nodes: %w", err)
	}
	c.known, c.message = true, ""
	if waiting := restorehold.WaitingOf(nodes); len(waiting) > 0 {
		c.message = restorehold.Message(waiting)
	}
	return c.message, nil
}

// queuePods queues the held pods for which something is to do.
func (c *Controller) queuePods(waiting bool) error {
	pods, err := c.pods.List(c.held)
	if err != nil {
		return fmt.Errorf("held pods: %w", err)
	}
	for _, pod := range pods {
		if !waiting || pod.Spec.NodeName == "" {
			c.queue.AddObject(pod)
		}
	}
	return nil
}

// syncNode deletes the Node that a restore has created for a machine, once it is reported.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && !isReportedPlaceholder(node) {
		return nil
	}
	if err != nil {
		return err
	}
	err = c.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
		UID: &node.UID, ResourceVersion: &node.ResourceVersion}})
	return unlessGone(err, "delete node that registers again")
}

// syncPod releases a held pod, or writes the message that says for which nodes it waits.
func (c *Controller) syncPod(ctx context.Context, key, message string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	pod, err := c.pods.Pods(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !restorehold.IsHeld(pod):
		return nil
	case err != nil:
		return err
	case message != "":
		return c.explain(ctx, pod, message)
	}
	return c.patch(ctx, pod, map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "labels": map[string]any{restorehold.Held: nil}}})
}

// explain writes a message into the condition PodScheduled of a pod without a node. The scheduler does
// not write it while it does not try the pod.
func (c *Controller) explain(ctx context.Context, pod *v1.Pod, message string) error {
	if pod.Spec.NodeName != "" {
		return nil
	}
	want := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
		Message: message, LastTransitionTime: metav1.NewTime(c.Clock.Now())}
	for _, has := range pod.Status.Conditions {
		if has.Type != want.Type {
			continue
		}
		if has.Status == want.Status {
			want.LastTransitionTime = has.LastTransitionTime
		}
		if has.Status == want.Status && has.Reason == want.Reason && has.Message == want.Message {
			return nil
		}
	}
	return c.patch(ctx, pod, map[string]any{"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{want}}}, "status")
}

func (c *Controller) patch(ctx context.Context, pod *v1.Pod, change map[string]any, subresource ...string) error {
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{}, subresource...)
	return unlessGone(err, "patch held pod")
}

// unlessGone returns err, with what failed, unless the object was deleted.
func unlessGone(err error, what string) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
