// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

// Verdict is a reason for a pod's failure that does not follow from the states of its containers,
// such as DeadlineExceeded.
type Verdict struct {
	Phase           v1.PodPhase
	Reason, Message string
	// Disruption reports whether the kubelet itself ended the pod, for example to evict it. If so,
	// the pod gets the condition DisruptionTarget.
	Disruption bool
	// Condition is the message of the condition DisruptionTarget. If it is empty, the condition has
	// the text of Message.
	Condition string
}

// Input contains all values from which Compute computes a pod's status.
type Input struct {
	// The pod and its state.

	// Pod contains the spec and the previous status.
	Pod  *v1.Pod
	Seen *cri.Pod
	Now  time.Time
	// Ending reports whether the pod is being stopped for good. Ended reports whether all its
	// containers have ended after that.
	Ending, Ended bool
	Verdict       *Verdict
	Resize        Resize

	// The state of the pod's containers.

	// Waiting contains, by container name, why a container does not run.
	Waiting map[string]v1.ContainerStateWaiting
	// Probed returns the probe results of a running container.
	Probed func(containerID string) (started, ready bool)
	// Message returns the termination message of an ended container.
	Message func(c *cri.Container) string
	// Devices returns the health of a container's devices.
	Devices func(c *v1.Container) []v1.ResourceStatus

	// The properties of the node.

	HostIPs     []string
	RuntimeName string
	// RecursiveReadOnly reports whether the runtime handler supports recursive read-only mounts.
	RecursiveReadOnly bool
}

// Resize is the state of a pod's in-place resize.
type Resize struct {
	// Pending is the message that says why the requested resources are not granted, or "" if they
	// are. Reason is Deferred if they may be granted later, otherwise Infeasible.
	Pending, Reason string
	// InProgress reports whether some containers do not have the granted resources yet. Since is
	// the pod's generation whose resources were granted. Error is why the containers do not have
	// them yet, if known.
	InProgress bool
	Since      int64
	Error      string
}

// Compute returns the status of the pod.
func Compute(in Input) v1.PodStatus {
	old := in.Pod.Status
	s := *old.DeepCopy()
	s.ObservedGeneration = in.Pod.Generation
	s.QOSClass = qos.Class(in.Pod)
	if s.StartTime == nil {
		t := metav1.NewTime(in.Now)
		s.StartTime = &t
	}
	addresses(&s, in)
	resize(&s, in)
	spec := in.Pod.Spec
	s.InitContainerStatuses = containers(in, spec.InitContainers, old.InitContainerStatuses, true)
	s.ContainerStatuses = containers(in, spec.Containers, old.ContainerStatuses, false)
	devices(in, &s)
	s.EphemeralContainerStatuses = containers(in, ephemeral(in.Pod), old.EphemeralContainerStatuses, false)
	if in.Ended {
		concludeContainers(in.Pod, &s)
	}
	s.Phase = phase(in.Pod, s, in.Ending)
	s.Reason, s.Message = "", ""
	if old.Phase == v1.PodFailed || old.Phase == v1.PodSucceeded {
		// A terminal phase never changes, even if another client wrote it.
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	}
	if in.Verdict != nil {
		s.Phase, s.Reason, s.Message = in.Verdict.Phase, in.Verdict.Reason, in.Verdict.Message
		if in.Verdict.Disruption {
			set(&s, v1.PodCondition{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: in.Pod.Generation,
				Reason: v1.PodReasonTerminationByKubelet, Message: cmp.Or(in.Verdict.Condition, in.Verdict.Message),
			}, metav1.NewTime(in.Now))
		}
	}
	if terminal(s.Phase) && !terminal(old.Phase) && !in.Ended {
		// Containers may still be running. The terminal phase is set when all of them have ended.
		s.Phase = cmp.Or(old.Phase, v1.PodPending)
		if anyStarted(s.ContainerStatuses) {
			s.Phase = v1.PodRunning
		}
		setConditions(in, &s, pendingPhase(in))
		return s
	}
	setConditions(in, &s, s.Phase)
	return s
}

// devices sets the health of the main containers' devices. If a container's devices are already
// released, it keeps the health from the previous status.
func devices(in Input, s *v1.PodStatus) {
	if in.Devices == nil {
		return
	}
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		j := slices.IndexFunc(in.Pod.Spec.Containers, func(o v1.Container) bool { return o.Name == c.Name })
		if j < 0 {
			continue
		}
		c.AllocatedResourcesStatus = in.Devices(&in.Pod.Spec.Containers[j])
		if k := slices.IndexFunc(in.Pod.Status.ContainerStatuses,
			func(o v1.ContainerStatus) bool { return o.Name == c.Name }); k >= 0 && c.AllocatedResourcesStatus == nil {
			c.AllocatedResourcesStatus = in.Pod.Status.ContainerStatuses[k].AllocatedResourcesStatus
		}
	}
}

// pendingPhase returns the terminal phase of the verdict, or "". The conditions already show it
// while the pod's phase still waits for the last container to end.
func pendingPhase(in Input) v1.PodPhase {
	if in.Verdict != nil {
		return in.Verdict.Phase
	}
	return ""
}

func terminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

func addresses(s *v1.PodStatus, in Input) {
	s.HostIP, s.HostIPs = "", nil
	for _, ip := range in.HostIPs {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
		s.HostIP = cmp.Or(s.HostIP, ip)
	}
	ips := []string(nil)
	if b := in.Seen.Sandbox(); b != nil {
		ips = b.IPs
	}
	if in.Pod.Spec.HostNetwork {
		ips = in.HostIPs
	}
	if len(ips) == 0 {
		return // keep the addresses of the previous status
	}
	s.PodIP, s.PodIPs = ips[0], nil
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

func ephemeral(pod *v1.Pod) []v1.Container {
	var out []v1.Container
	for _, c := range pod.Spec.EphemeralContainers {
		out = append(out, v1.Container(c.EphemeralContainerCommon))
	}
	return out
}

func anyStarted(list []v1.ContainerStatus) bool {
	return slices.ContainsFunc(list, func(c v1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}

// concludeContainers sets the state terminated on containers that cannot run any more: containers
// that the runtime no longer has, and containers that were never started although all init
// containers have ended.
func concludeContainers(pod *v1.Pod, s *v1.PodStatus) {
	initialized := len(pod.Spec.InitContainers) == 0 || anyStarted(s.ContainerStatuses)
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.State.Terminated != nil {
				continue
			}
			if c.LastTerminationState.Terminated != nil && c.State.Waiting != nil {
				c.State, c.LastTerminationState = v1.ContainerState{
					Terminated: c.LastTerminationState.Terminated}, v1.ContainerState{}
			} else if c.State.Running != nil || initialized || i < len(s.InitContainerStatuses) &&
				c.LastTerminationState.Terminated != nil {
				c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
					Reason:  "ContainerStatusUnknown",
					Message: "The container could not be located when the pod was terminated", ExitCode: 137,
				}}
			}
			c.Ready = false
			if c.Started != nil {
				c.Started = new(bool)
			}
		}
	}
}

// restartingAll reports whether a container is waiting because a restart rule restarts all
// containers of the pod.
func restartingAll(c v1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == reasonRestartingAll
}

// phase computes the pod's phase from the states of its containers.
func phase(pod *v1.Pod, s v1.PodStatus, ending bool) v1.PodPhase {
	started := anyStarted(s.ContainerStatuses)
	pending := false
	for i, c := range s.InitContainerStatuses {
		spec := &pod.Spec.InitContainers[i]
		t := c.State.Terminated
		if t == nil && c.State.Waiting != nil {
			t = c.LastTerminationState.Terminated
		}
		switch {
		case restartingAll(c):
			pending = pending || !started
		case cri.Sidecar(spec):
			pending = pending || !started && (c.Started == nil || !*c.Started)
		case t != nil && t.ExitCode == 0:
		case t != nil && !restart.ShouldStart(pod, spec, t.ExitCode, true):
			return v1.PodFailed
		default:
			pending = pending || !started
		}
	}
	running, waiting, stopped, succeeded, again := 0, 0, 0, 0, false
	for i, c := range s.ContainerStatuses {
		t := c.State.Terminated
		if t == nil {
			t = c.LastTerminationState.Terminated
		}
		switch {
		case c.State.Running != nil:
			running++
		case t != nil:
			stopped++
			if t.ExitCode == 0 {
				succeeded++
			}
			again = again || restartingAll(c) || restart.ShouldStart(pod, &pod.Spec.Containers[i], t.ExitCode, false)
		default:
			waiting++
		}
	}
	switch {
	case ending && running == 0 && stopped > 0 && waiting == 0:
		if stopped == succeeded {
			return v1.PodSucceeded
		}
		return v1.PodFailed
	case pending || waiting > 0:
		return v1.PodPending
	case running > 0 || again:
		return v1.PodRunning
	case stopped > 0 && stopped == succeeded:
		return v1.PodSucceeded
	case stopped > 0:
		return v1.PodFailed
	default:
		return v1.PodPending
	}
}
