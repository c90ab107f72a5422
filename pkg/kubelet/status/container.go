// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

// Reasons of containers that wait.
const (
	reasonCreating     = "ContainerCreating"
	reasonInitializing = "PodInitializing"
	// reasonRestartingAll is the reason of a container that has ended because a restart rule
	// restarts all containers of the pod.
	reasonRestartingAll = "RestartingAllContainers"
)

func containers(in Input, specs []v1.Container, old []v1.ContainerStatus, init bool) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range specs {
		out = append(out, container(in, &specs[i], find(old, specs[i].Name), init))
	}
	return out
}

func find(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	if i := slices.IndexFunc(list, func(c v1.ContainerStatus) bool { return c.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// container computes the status of a container from its latest two runs, the reason for which it
// waits, and its previous status.
func container(in Input, spec *v1.Container, old *v1.ContainerStatus, init bool) v1.ContainerStatus {
	run := in.Seen.Latest(spec.Name)
	if run == nil {
		return statusWithoutRun(in, spec, old)
	}
	s := v1.ContainerStatus{
		Name: spec.Name, Image: run.Image, ImageID: run.ImageID, RestartCount: int32(run.Restarts),
		ContainerID: in.RuntimeName + "://" + run.ID, VolumeMounts: mounts(spec, in.RecursiveReadOnly),
		Resources: resources(spec, run), AllocatedResources: spec.Resources.Requests.DeepCopy(), User: user(run),
	}
	started := false
	switch run.State {
	case cri.Running:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(run.StartedAt)}
		started, s.Ready = in.Probed(run.ID)
		if init && !cri.Sidecar(spec) {
			s.Ready = false
		}
	case cri.Exited:
		s.State.Terminated = terminatedState(in, run)
		s.Ready = init && run.ExitCode == 0 && !cri.Sidecar(spec)
	default:
		s.State.Waiting = &v1.ContainerStateWaiting{}
	}
	s.Started = &started
	if before := in.Seen.Run(spec.Name, 1); before != nil && before.State == cri.Exited {
		s.LastTerminationState.Terminated = terminatedState(in, before)
	} else if old != nil && old.RestartCount == s.RestartCount {
		s.LastTerminationState = old.LastTerminationState
	} else if old != nil && old.State.Terminated != nil && old.RestartCount < s.RestartCount {
		s.LastTerminationState = old.State
	}
	if s.State.Terminated != nil && !in.Ending && restart.Before(run, restart.Epoch(in.Pod, in.Seen)) {
		s.LastTerminationState = s.State
		s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonRestartingAll}}
		s.Ready = false
	}
	if w, ok := in.Waiting[spec.Name]; ok && run.State != cri.Running && !in.Ending {
		if s.State.Terminated != nil {
			s.LastTerminationState = s.State
		}
		s.State = v1.ContainerState{Waiting: &w}
	}
	return s
}

// statusWithoutRun computes the status of a container if the runtime has no run of it.
func statusWithoutRun(in Input, spec *v1.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	if old != nil && old.State.Terminated != nil {
		return *old.DeepCopy() // the kubelet has removed the ended container from the runtime, so keep its status
	}
	started := false
	reason := reasonCreating
	if len(in.Pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	s := v1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, Started: &started, VolumeMounts: mounts(spec, in.RecursiveReadOnly),
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
	}
	if w, ok := in.Waiting[spec.Name]; ok && !in.Ending {
		s.State.Waiting = &w
	}
	if old == nil {
		return s
	}
	s.RestartCount, s.LastTerminationState = old.RestartCount, old.LastTerminationState
	if old.State.Running != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			Reason: "ContainerStatusUnknown", ExitCode: 137,
			Message: "The container could not be located when the pod was deleted.  The container used to be Running",
		}
		if in.Pod.DeletionTimestamp == nil {
			s.RestartCount++
		}
	}
	return s
}

func terminatedState(in Input, run *cri.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode: run.ExitCode, Reason: run.Reason, Message: run.Message,
		FinishedAt: metav1.NewTime(run.FinishedAt), ContainerID: in.RuntimeName + "://" + run.ID,
	}
	if !run.StartedAt.IsZero() {
		t.StartedAt = metav1.NewTime(run.StartedAt)
	} else {
		t.StartedAt = metav1.Unix(0, 0)
	}
	if in.Message != nil {
		if m := in.Message(run); m != "" {
			t.Message = m
		}
	}
	return t
}

func mounts(spec *v1.Container, recursive bool) []v1.VolumeMountStatus {
	var out []v1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if w := m.RecursiveReadOnly; w != nil &&
				(*w == v1.RecursiveReadOnlyEnabled || *w == v1.RecursiveReadOnlyIfPossible && recursive) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		out = append(out, s)
	}
	return out
}

// resources returns the resources of a container's status. For a running container, it takes CPU
// and memory from the runtime, because they may differ from the spec during a resize.
func resources(spec *v1.Container, run *cri.Container) *v1.ResourceRequirements {
	r := spec.Resources.DeepCopy()
	l := run.Resources
	if run.State != cri.Running || l == nil {
		return r
	}
	if _, ok := r.Limits[v1.ResourceMemory]; ok && l.MemoryLimitInBytes > 0 {
		r.Limits[v1.ResourceMemory] = keep(r.Limits[v1.ResourceMemory],
			*resource.NewQuantity(l.MemoryLimitInBytes, resource.BinarySI))
	}
	if want, ok := r.Limits[v1.ResourceCPU]; ok && l.CpuQuota > 0 && l.CpuPeriod > 0 {
		if actual := l.CpuQuota * 1000 / l.CpuPeriod; actual > 10 || want.MilliValue() > 10 {
			r.Limits[v1.ResourceCPU] = keep(want, *resource.NewMilliQuantity(actual, resource.DecimalSI))
		}
	}
	if want, ok := r.Requests[v1.ResourceCPU]; ok && l.CpuShares > 2 {
		if actual := (l.CpuShares*1000 + 1023) / 1024; actual > 2 || want.MilliValue() > 2 {
			r.Requests[v1.ResourceCPU] = keep(want, *resource.NewMilliQuantity(actual, resource.DecimalSI))
		}
	}
	return r
}

// keep returns want if both quantities are equal, because it has the user's notation. Otherwise it
// returns actual.
func keep(want, actual resource.Quantity) resource.Quantity {
	if want.Cmp(actual) == 0 {
		return want
	}
	return actual
}

func user(run *cri.Container) *v1.ContainerUser {
	u := run.User
	if u == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.Uid, GID: u.Gid,
		SupplementalGroups: u.SupplementalGroups}}
}
