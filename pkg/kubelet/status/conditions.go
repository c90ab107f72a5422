// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

// Reasons of conditions. Kubernetes uses the same ones.
const (
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
	reasonGates          = "ReadinessGatesNotReady"
	reasonCompleted      = "PodCompleted"
	reasonFailed         = "PodFailed"
	reasonNoSandbox      = "PodSandboxNotReady"
)

// setConditions sets the conditions that the kubelet owns. It does not change other conditions.
func setConditions(in Input, s *v1.PodStatus, p v1.PodPhase) {
	ready := containersReady(in.Pod, s, p)
	pod := ready
	pod.Type = v1.PodReady
	if ready.Status == v1.ConditionTrue {
		pod = gates(in.Pod, s)
	}
	conditions := []v1.PodCondition{readyToStart(in), initialized(in.Pod, s, p), pod, ready,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue}}
	if restart.CanRestartAll(in.Pod) {
		conditions = append(conditions, restarting(in))
	}
	for _, c := range conditions {
		c.ObservedGeneration = in.Pod.Generation
		set(s, c, metav1.NewTime(in.Now))
	}
}

// readyToStart returns the condition PodReadyToStartContainers. It is true if the pod has a sandbox in which
// containers can start. Otherwise the message says why not, with the text of Kubernetes.
func readyToStart(in Input) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: reasonNoSandbox}
	newest, ready := in.Seen.Sandbox(), 0
	if newest != nil {
		for _, b := range in.Seen.Sandboxes {
			if b.Ready {
				ready++
			}
		}
	}
	switch {
	case newest == nil:
		c.Message = "no pod sandbox exists"
	case ready > 1:
		c.Message = "multiple pod sandboxes are ready and need to be reconciled"
	case !newest.Ready:
		c.Message = "pod sandbox is not ready"
	case newest.HostNetwork != in.Pod.Spec.HostNetwork:
		c.Message = "network namespace mode changed and sandbox needs to be recreated"
	case !newest.HostNetwork && len(newest.IPs) == 0:
		c.Message = "pod sandbox has no IP address"
	default:
		c.Status, c.Reason = v1.ConditionTrue, ""
	}
	return c
}

// resize sets the conditions and resources that show the state of an in-place resize.
func resize(s *v1.PodStatus, in Input) {
	s.Conditions = slices.Clone(s.Conditions)
	r := in.Resize
	for _, c := range []struct {
		holds           bool
		kind            v1.PodConditionType
		generation      int64
		reason, message string
	}{
		{r.Pending != "", v1.PodResizePending, in.Pod.Generation, r.Reason, r.Pending},
		{r.InProgress, v1.PodResizeInProgress, r.Since, "", ""},
		{r.InProgress && r.Error != "", v1.PodResizeInProgress, r.Since, v1.PodReasonError, r.Error},
	} {
		i := slices.IndexFunc(s.Conditions, func(o v1.PodCondition) bool { return o.Type == c.kind })
		switch {
		case c.holds:
			set(s, v1.PodCondition{
				Type: c.kind, Status: v1.ConditionTrue, ObservedGeneration: c.generation, Reason: c.reason, Message: c.message,
			}, metav1.NewTime(in.Now))
		case i >= 0 && c.kind == v1.PodResizePending, i >= 0 && !r.InProgress:
			s.Conditions = slices.Delete(s.Conditions, i, i+1)
		}
	}
	s.AllocatedResources = nil
	if whole := in.Pod.Spec.Resources; whole != nil {
		s.AllocatedResources, s.Resources = whole.Requests.DeepCopy(), whole.DeepCopy()
	}
	if len(s.AllocatedResources) == 0 { // without pod-level resources, use the sum of the containers' resources
		if sum := resource.PodRequests(in.Pod, resource.PodResourcesOptions{}); len(sum) > 0 {
			s.AllocatedResources = sum
		}
	}
}

// restarting returns the condition AllContainersRestarting. It is true while a container from
// before the restart of all containers is still running.
func restarting(in Input) v1.PodCondition {
	epoch := restart.Epoch(in.Pod, in.Seen)
	for _, list := range [][]v1.Container{in.Pod.Spec.InitContainers, in.Pod.Spec.Containers} {
		for i := range list {
			if run := in.Seen.Latest(list[i].Name); restart.Before(run, epoch) && run.State == cri.Running {
				return v1.PodCondition{
					Type: v1.AllContainersRestarting, Status: v1.ConditionTrue,
					Reason: "RestartAllContainersStarted", Message: "container exited with restart policy rule",
				}
			}
		}
	}
	return v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
}

// set sets a condition. It changes lastTransitionTime only if the condition's status changes.
func set(s *v1.PodStatus, c v1.PodCondition, now metav1.Time) {
	i := slices.IndexFunc(s.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
	c.LastTransitionTime = now
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

func containersReady(pod *v1.Pod, s *v1.PodStatus, p v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	switch p {
	case v1.PodSucceeded:
		c.Reason = reasonCompleted
		return c
	case v1.PodFailed:
		c.Reason = reasonFailed
		return c
	}
	var unready []string
	for i, k := range s.InitContainerStatuses {
		if cri.Sidecar(&pod.Spec.InitContainers[i]) && !k.Ready {
			unready = append(unready, k.Name)
		}
	}
	for _, k := range s.ContainerStatuses {
		if !k.Ready {
			unready = append(unready, k.Name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = reasonNotReady, fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = v1.ConditionTrue
	return c
}

func gates(pod *v1.Pod, s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	var unready []string
	for _, g := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(s.Conditions, func(o v1.PodCondition) bool { return o.Type == g.ConditionType })
		switch {
		case i < 0:
			unready = append(unready,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case s.Conditions[i].Status != v1.ConditionTrue:
			unready = append(unready, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v",
				g.ConditionType, s.Conditions[i].Status))
		}
	}
	if len(unready) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonGates, strings.Join(unready, ", ")
	}
	return c
}

func initialized(pod *v1.Pod, s *v1.PodStatus, p v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if p == v1.PodSucceeded {
		c.Reason = reasonCompleted
		return c
	}
	if anyStarted(s.ContainerStatuses) {
		return c
	}
	var incomplete []string
	for i, k := range s.InitContainerStatuses {
		done := k.Ready
		if cri.Sidecar(&pod.Spec.InitContainers[i]) {
			done = k.Started != nil && *k.Started
		}
		if !done {
			incomplete = append(incomplete, k.Name)
		}
	}
	if len(incomplete) > 0 {
		c.Status, c.Reason = v1.ConditionFalse, reasonNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return c
}
