// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
)

const nodeLost = "NodeLost" // status.reason of a pod whose node is unreachable

func podCells(pod *corev1.Pod, env resource.CellEnv) []any {
	s := summarize(pod)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, env.Age(s.lastRestart))
	}
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, strconv.Itoa(s.ready) + "/" + strconv.Itoa(s.total), s.reason, restarts, env.Age(pod.CreationTimestamp),
		column.OrNone(ip), column.OrNone(pod.Spec.NodeName), column.OrNone(pod.Status.NominatedNodeName), readinessGates(pod),
	}
}

// podRowConditions returns a condition for a pod that has finished, so that a client can print its
// row in another colour.
func podRowConditions(pod *corev1.Pod) []metav1.TableRowCondition {
	ended := metav1.TableRowCondition{Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
		Reason: string(pod.Status.Phase)}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		ended.Message = "The pod has completed successfully."
	case corev1.PodFailed:
		ended.Message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{ended}
}

// podSummary has the values of a pod's cells: the numbers of ready containers, of all containers
// and of restarts, the time of the last restart, and the status text (reason).
type podSummary struct {
	ready, total int
	reason       string
	restarts     int
	lastRestart  metav1.Time
}

func summarize(pod *corev1.Pod) podSummary {
	s := podSummary{reason: string(pod.Status.Phase), total: len(pod.Spec.Containers)}
	if pod.Status.Reason != "" {
		s.reason = pod.Status.Reason
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.Restartable(c) {
			sidecars[c.Name] = true
			s.total++
		}
	}
	if initializing := s.addInit(pod, sidecars); !initializing || hasCondition(pod, corev1.PodInitialized) {
		s.restarts, s.lastRestart = 0, metav1.Time{}
		for i := range pod.Status.InitContainerStatuses {
			if c := &pod.Status.InitContainerStatuses[i]; sidecars[c.Name] {
				s.addRestarts(c)
			}
			if waitsForInit(&pod.Status.InitContainerStatuses[i], sidecars) {
				break
			}
		}
		s.addMain(pod)
	}
	s.addDeletion(pod)
	return s
}

// addInit counts the init containers in order, up to the first one for which the next container
// still waits. If there is such a container, it determines the pod's status text, and addInit
// returns true.
func (s *podSummary) addInit(pod *corev1.Pod, sidecars map[string]bool) bool {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.addRestarts(c)
		if !waitsForInit(c, sidecars) {
			if succeeded := c.State.Terminated != nil && c.State.Terminated.ExitCode == 0; !succeeded && c.Ready {
				s.ready++
			}
			continue
		}
		switch {
		case c.State.Terminated != nil:
			s.reason = "Init:" + exitReason(c.State.Terminated)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.reason = "Init:" + c.State.Waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

// waitsForInit reports whether the container after init container c has to wait for c. It does not
// have to wait if c has succeeded or is a sidecar that has started.
func waitsForInit(c *corev1.ContainerStatus, sidecars map[string]bool) bool {
	if c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
		return false
	}
	return !(sidecars[c.Name] && c.Started != nil && *c.Started)
}

// addMain counts the main containers. The loop goes from the last container to the first, so that
// the status text is that of the first container that has a reason to show.
func (s *podSummary) addMain(pod *corev1.Pod) {
	running, failure := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = exitReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case running && hasCondition(pod, corev1.PodReady):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func (s *podSummary) addRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.lastRestart.Before(&t.FinishedAt) {
		s.lastRestart = t.FinishedAt
	}
}

func (s *podSummary) addDeletion(pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		return
	}
	if pod.Status.Reason == nodeLost {
		s.reason = "Unknown"
	} else if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
		s.reason = "Terminating"
	}
}

func exitReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return column.None
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if hasCondition(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}
