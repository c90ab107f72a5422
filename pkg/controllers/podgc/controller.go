// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgc removes pods that nobody else will: those on nodes that do not
// exist any more, those that are to end and never had a node, and ended pods
// beyond what is kept.
package podgc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "pod-garbage-collector-controller"

const (
	period = 20 * time.Second
	// quarantine is how long a node has to be missing before its pods are removed.
	quarantine = 40 * time.Second
	// maxEnded is how many ended pods are kept.
	maxEnded = 12500
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	missing map[string]time.Time // nodes, since when
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	core := d.Informers.Core().V1()
	return &Controller{Deps: d, pods: core.Pods().Lister(), nodes: core.Nodes().Lister(), missing: map[string]time.Time{}}, nil
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	t := c.Clock.NewTicker(period)
	defer t.Stop()
	for {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("pods are not collected", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
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
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil && len(pod.Spec.SchedulingGates) == 0:
			errs = append(errs, c.remove(ctx, pod, ""))
		case pod.Spec.NodeName != "" && c.nodeMissing(ctx, pod.Spec.NodeName, missing):
			errs = append(errs, c.remove(ctx, pod, "PodGC: node no longer exists"))
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
			ended = append(ended, pod)
		}
	}
	for node := range c.missing {
		if !missing[node] {
			delete(c.missing, node)
		}
	}
	slices.SortFunc(ended, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, pod := range ended[:max(len(ended)-maxEnded, 0)] {
		errs = append(errs, c.remove(ctx, pod, ""))
	}
	return errors.Join(errs...)
}

// nodeMissing tells whether a node has been missing for long enough, and is missing indeed.
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

// remove deletes a pod at once. With a message the pod is disrupted, and says so.
func (c *Controller) remove(ctx context.Context, pod *v1.Pod, message string) error {
	if message != "" && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		next := pod.DeepCopy()
		next.Status.Phase = v1.PodFailed
		next.Status.Conditions = append(slices.DeleteFunc(next.Status.Conditions, func(o v1.PodCondition) bool { return o.Type == v1.DisruptionTarget }),
			v1.PodCondition{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByPodGC", Message: message,
				LastTransitionTime: metav1.NewTime(c.Clock.Now()), ObservedGeneration: pod.Generation,
			})
		if _, err := c.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("condition of %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	zero := int64(0)
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
