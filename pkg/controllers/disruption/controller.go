// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disruption maintains the status of PodDisruptionBudgets. The status contains the number
// of pods that may be evicted now; the eviction API rejects evictions that exceed it. The function
// status computes the status from the selected pods and the expected number of pods, without I/O.
//
// The package also sets a pod's DisruptionTarget condition to False if the disruption that it
// announced did not happen in time.
package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Name is the controller's name.
const Name = "disruption-controller"

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	queue      *controller.Queue // its keys are those of budgets
	staleQueue *controller.Queue // its keys are those of pods whose announced disruption may be stale
	budgets    policylisters.PodDisruptionBudgetLister
	pods       corelisters.PodLister
	scales     *scales
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	budgets, pods := d.Informers.Policy().V1().PodDisruptionBudgets(), d.Informers.Core().V1().Pods()
	c := &Controller{Deps: d, budgets: budgets.Lister(), pods: pods.Lister(), scales: newScales(d)}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.sync)
	c.staleQueue = controller.NewQueue(Name+"/stale", d.Clock, d.Log, 1, c.syncStale)
	return c, errors.Join(
		controller.OnChange(budgets.Informer(), func(_, b *policyv1.PodDisruptionBudget) {
			if b != nil {
				c.queue.AddObject(b)
			}
		}),
		controller.OnChange(pods.Informer(), c.podChanged),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error { return c.staleQueue.Run(ctx) })
	return g.Wait()
}

// podChanged queues the budgets that select the pod now or selected it before the change. If the
// pod has a DisruptionTarget condition, it queues the pod for the time when the condition becomes
// stale.
func (c *Controller) podChanged(old, pod *v1.Pod) {
	if pod != nil {
		if in, announced := staleIn(pod, c.Clock.Now()); announced {
			c.staleQueue.AddAfter(controller.Key(pod), in)
		}
	}
	if old != nil && pod != nil && !podMatters(old, pod) {
		return
	}
	for _, p := range []*v1.Pod{old, pod} {
		if p == nil {
			continue
		}
		budgets, err := c.budgets.GetPodPodDisruptionBudgets(p)
		if err != nil {
			continue // the error means that no budget selects the pod
		}
		for _, b := range budgets {
			c.queue.AddObject(b)
		}
	}
	if pod != nil {
		c.warnOfMany(pod)
	}
}

// warnOfMany records an event for a pod that several budgets select. The eviction API does not
// evict such a pod.
func (c *Controller) warnOfMany(pod *v1.Pod) {
	if budgets, err := c.budgets.GetPodPodDisruptionBudgets(pod); err == nil && len(budgets) > 1 {
		c.Events.Eventf(pod, v1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			"Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", pod.Namespace, pod.Name, budgets[0].Name)
	}
}

// podMatters reports whether a change of a pod may change the status of a budget.
func podMatters(old, pod *v1.Pod) bool {
	return old.UID != pod.UID || controller.Ready(old) != controller.Ready(pod) ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		!maps.Equal(old.Labels, pod.Labels) || !equality.Semantic.DeepEqual(old.OwnerReferences, pod.OwnerReferences)
}

func (c *Controller) sync(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	b, err := c.budgets.PodDisruptionBudgets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = c.update(ctx, b)
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return err
	}
	// The expected number of pods is unknown, so allow no disruption.
	return errors.Join(err, c.write(ctx, b, failedStatus(b, err)))
}

func (c *Controller) update(ctx context.Context, b *policyv1.PodDisruptionBudget) error {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	pods, err := c.pods.Pods(b.Namespace).List(selector)
	if err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if len(pods) == 0 {
		c.Events.Event(b, v1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected := int32(len(pods))
	if needsScale(b) {
		var unmanaged bool
		if expected, unmanaged, err = c.scales.sum(ctx, pods); err != nil {
			c.Events.Eventf(b, v1.EventTypeWarning, "CalculateExpectedPodCountFailed",
				"Failed to calculate the number of expected pods: %v", err)
			return err
		}
		if unmanaged {
			c.Events.Eventf(b, v1.EventTypeWarning, "UnmanagedPods",
				"Pods selected by this PodDisruptionBudget (selector: %v) were found "+
					"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which "+
					"may result in undefined behavior. "+
					"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
				b.Spec.Selector)
		}
	}
	now := c.Clock.Now()
	want, again, err := status(b, pods, expected, now)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if at, there := b.Status.DisruptedPods[pod.Name]; there && pod.DeletionTimestamp == nil &&
			at.Add(deletionTimeout).Before(now) {
			c.Events.Eventf(pod, v1.EventTypeWarning, "NotDeleted",
				"Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
		}
	}
	if again > 0 {
		c.queue.AddAfter(controller.Key(b), again)
	}
	return c.write(ctx, b, want)
}

func (c *Controller) write(ctx context.Context, b *policyv1.PodDisruptionBudget,
	want policyv1.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(b.Status, want) {
		return nil
	}
	next := b.DeepCopy()
	next.Status = want
	if _, err := c.Client.PolicyV1().PodDisruptionBudgets(b.Namespace).UpdateStatus(ctx, next,
		metav1.UpdateOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// syncStale sets a pod's DisruptionTarget condition to False if the announced disruption did not
// happen in time.
func (c *Controller) syncStale(ctx context.Context, key string) error {
	namespace, name := controller.SplitKey(key)
	pod, err := c.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	now := c.Clock.Now()
	in, announced := staleIn(pod, now)
	if !announced {
		return nil
	}
	if in > 0 {
		c.staleQueue.AddAfter(key, in)
		return nil
	}
	next := pod.DeepCopy()
	*controller.Condition(next, v1.DisruptionTarget) = v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionFalse, ObservedGeneration: pod.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if _, err := c.Client.CoreV1().Pods(namespace).UpdateStatus(ctx, next,
		metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("condition: %w", err)
	}
	return nil
}

// failedStatus returns the status for a budget whose status could not be computed because of err.
// It allows no disruption.
func failedStatus(b *policyv1.PodDisruptionBudget, err error) policyv1.PodDisruptionBudgetStatus {
	out := *b.Status.DeepCopy()
	out.DisruptionsAllowed = 0
	meta.SetStatusCondition(&out.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
		Message: err.Error(), ObservedGeneration: out.ObservedGeneration,
	})
	return out
}

const (
	// deletionTimeout is how long a pod whose eviction was allowed counts as disrupted if it is not
	// being deleted.
	deletionTimeout = 2 * time.Minute
	// staleTimeout is how long a pod's DisruptionTarget condition remains True if the pod is not
	// being deleted.
	staleTimeout = 2 * time.Minute
)
