// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Active reports whether a pod is not being deleted and its phase is neither Succeeded nor Failed.
func Active(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed && pod.DeletionTimestamp == nil
}

// Condition returns a pod's condition of type t, or nil if the pod has none.
func Condition(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ready reports whether a pod's condition Ready is true.
func Ready(pod *v1.Pod) bool {
	c := Condition(pod, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}

// Available reports whether a pod has been ready for at least minReady. If it is ready but not yet
// available, it also returns how long it must stay ready to become available.
func Available(pod *v1.Pod, minReady time.Duration, now time.Time) (available bool, remaining time.Duration) {
	if !Ready(pod) {
		return false, 0
	}
	c := Condition(pod, v1.PodReady)
	if remaining = c.LastTransitionTime.Add(minReady).Sub(now); minReady > 0 && remaining > 0 {
		return false, remaining
	}
	return true, 0
}

// Sidecar reports whether a pod has a sidecar (a restartable init container) with the given name.
func Sidecar(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}

// NodeReady returns a node's Ready condition, or a condition with an empty status if the node has
// no Ready condition.
func NodeReady(n *v1.Node) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{Type: v1.NodeReady}
}
