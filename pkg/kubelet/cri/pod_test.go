// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStateOfContainers(t *testing.T) {
	exited := runtimeapi.ContainerState_CONTAINER_EXITED
	for name, tc := range map[string]struct {
		status *runtimeapi.ContainerStatus
		want   State
	}{
		"created": {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_CREATED}, Created},
		"running": {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING, StartedAt: 1}, Running},
		"unknown": {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN}, Unknown},
		"ended":   {&runtimeapi.ContainerStatus{State: exited, StartedAt: 1, ExitCode: 1, Reason: "Error"}, Exited},
		"cannot start": {&runtimeapi.ContainerStatus{
			State: exited, ExitCode: 128, Reason: "StartError",
			Message: "failed to start containerd task: exec: \"nosuch\": not found",
		}, Exited},
		"kubelet killed during the start": {&runtimeapi.ContainerStatus{
			State: exited, ExitCode: 128, Reason: "StartError",
			Message: `failed to start containerd task "d0": context canceled`,
		}, Created},
	} {
		if got := containerOf(tc.status); got.State != tc.want {
			t.Errorf("%s: state %v, want %v", name, got.State, tc.want)
		}
	}
}

// TestNewestAfterTheClockWasSetBack checks that the sandbox and the container that were created
// last are sorted first, even if the clock was set back before they were created.
func TestNewestAfterTheClockWasSetBack(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	p := &Pod{
		Sandboxes: []Sandbox{{ID: "old", Attempt: 0, CreatedAt: at(5000)}, {ID: "new", Attempt: 1, CreatedAt: at(1000)}},
		Containers: []Container{
			{ID: "a0", Name: "a", CreatedAt: at(5000)}, {ID: "b0", Name: "b", CreatedAt: at(5001)},
			{ID: "a1", Name: "a", Restarts: 1, CreatedAt: at(1000)},
		},
	}
	p.sort()
	if got := p.Sandboxes[0].ID; got != "new" {
		t.Errorf("sandbox %s", got)
	}
	if got := p.Latest("a").ID; got != "a1" {
		t.Errorf("container %s", got)
	}
}

// TestAnnotations checks that the kubelet can read the labels and annotations that ContainerConfig
// writes, and that MinimalPod restores the preStop handler and the grace period.
func TestAnnotations(t *testing.T) {
	grace := int64(7)
	c := &v1.Container{Name: "c", Image: "img", TerminationMessagePath: "/m", Lifecycle: &v1.Lifecycle{
		PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"x"}}},
	}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{*c}}}
	cfg, err := ContainerConfig(pod, c, ContainerInput{Restarts: 3, Epoch: 5})
	if err != nil {
		t.Fatal(err)
	}
	got := containerOf(&runtimeapi.ContainerStatus{Labels: cfg.Labels, Annotations: cfg.Annotations})
	if got.Name != "c" || got.Restarts != 3 || got.Epoch != 5 || got.Hash != Hash(c) || got.MessagePath != "/m" {
		t.Errorf("%+v", got)
	}
	bare := (&Pod{UID: "u", Namespace: "ns", Name: "p", Containers: []Container{got}}).MinimalPod()
	if h := bare.Spec.Containers[0].Lifecycle; h == nil || h.PreStop.Exec.Command[0] != "x" ||
		*bare.Spec.TerminationGracePeriodSeconds != 7 {
		t.Errorf("%+v", bare.Spec)
	}
}
