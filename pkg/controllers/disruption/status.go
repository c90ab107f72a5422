// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// needsScale reports whether the status depends on the expected number of pods. It does not if
// minAvailable is an absolute number.
func needsScale(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

// desiredHealthy returns how many pods a PodDisruptionBudget requires to be healthy, if the
// expected number of pods is given.
func desiredHealthy(b *policyv1.PodDisruptionBudget, expected int32) (int32, error) {
	switch {
	case b.Spec.MaxUnavailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, int(expected), true)
		if err != nil {
			return 0, fmt.Errorf("maxUnavailable: %w", err)
		}
		return max(expected-int32(n), 0), nil
	case b.Spec.MinAvailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, int(expected), true)
		if err != nil {
			return 0, fmt.Errorf("minAvailable: %w", err)
		}
		return int32(n), nil
	}
	return 0, nil
}

// status returns the status of a budget, given the pods that it selects and the expected number of
// pods. It also returns the time until the status changes without an event, or 0 if it cannot
// change without one.
func status(b *policyv1.PodDisruptionBudget, pods []*v1.Pod, expected int32,
	now time.Time) (policyv1.PodDisruptionBudgetStatus, time.Duration, error) {
	desired, err := desiredHealthy(b, expected)
	if err != nil {
		return policyv1.PodDisruptionBudgetStatus{}, 0, err
	}
	var again time.Duration
	healthy := int32(0)
	disrupted := map[string]metav1.Time{}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if at, there := b.Status.DisruptedPods[pod.Name]; there {
			if left := at.Add(deletionTimeout).Sub(now); left > 0 {
				// The eviction was allowed and the pod will be deleted soon, so it counts as
				// disrupted.
				disrupted[pod.Name] = at
				if again == 0 || left < again {
					again = left
				}
				continue
			}
		}
		if controller.Ready(pod) {
			healthy++
		}
	}
	next := b.DeepCopy()
	next.Status = policyv1.PodDisruptionBudgetStatus{
		CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: expected, DisruptedPods: disrupted,
		ObservedGeneration: b.Generation, Conditions: next.Status.Conditions,
	}
	// If no pods are expected yet, allow no disruption, so that the first pods cannot be evicted
	// before they are counted.
	if expected > 0 {
		next.Status.DisruptionsAllowed = max(healthy-desired, 0)
	}
	poddisruptionbudget.UpdateDisruptionAllowedCondition(next)
	return next.Status, again, nil
}

// staleIn returns the time until a pod's DisruptionTarget condition becomes stale. It returns false
// if that cannot happen: the condition is not True, the pod is being deleted or has ended, or the
// kubelet set the condition. A condition of the kubelet has no time limit.
func staleIn(pod *v1.Pod, now time.Time) (time.Duration, bool) {
	c := controller.Condition(pod, v1.DisruptionTarget)
	if pod.DeletionTimestamp != nil || c == nil || c.Status != v1.ConditionTrue ||
		c.Reason == v1.PodReasonTerminationByKubelet ||
		pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return 0, false
	}
	return max(staleTimeout-now.Sub(c.LastTransitionTime.Time), 0), true
}
