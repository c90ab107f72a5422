// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestRequestedResizes checks that each changed request and limit of each container is counted,
// including those of init containers.
func TestRequestedResizes(t *testing.T) {
	of := func(request, limit string) v1.ResourceRequirements {
		r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
		if request != "" {
			r.Requests[v1.ResourceMemory] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[v1.ResourceMemory] = resource.MustParse(limit)
		}
		return r
	}
	always := v1.ContainerRestartPolicyAlways
	pod := func(generation int64, init, sidecar, main v1.ResourceRequirements) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init", Resources: init},
				{Name: "sidecar", RestartPolicy: &always, Resources: sidecar}},
			Containers: []v1.Container{{Name: "main", Resources: main}},
		}}
		p.Generation = generation
		return p
	}
	metrics := prometheus.NewPedanticRegistry()
	s := newResizes(metrics)
	before := pod(1, of("1Mi", ""), of("1Mi", "2Mi"), of("", "4Mi"))
	// This call counts nothing, because both versions of the pod have the same generation.
	s.asked(before, pod(1, of("9Mi", ""), of("9Mi", "9Mi"), of("", "9Mi")))
	s.asked(before, pod(2, of("2Mi", ""), of("1024Ki", "3Mi"), of("1Mi", "2Mi")))
	s.asked(before, pod(3, of("1Mi", ""), of("", "2Mi"), of("", "")))
	want := `
# HELP kubelet_container_requested_resizes_total [ALPHA] Number of requested resizes, counted at the container level.
# TYPE kubelet_container_requested_resizes_total counter
kubelet_container_requested_resizes_total{operation="add",requirement="requests",resource="memory"} 1
kubelet_container_requested_resizes_total{operation="decrease",requirement="limits",resource="memory"} 1
kubelet_container_requested_resizes_total{operation="increase",requirement="limits",resource="memory"} 1
kubelet_container_requested_resizes_total{operation="increase",requirement="requests",resource="memory"} 1
kubelet_container_requested_resizes_total{operation="remove",requirement="limits",resource="memory"} 1
kubelet_container_requested_resizes_total{operation="remove",requirement="requests",resource="memory"} 1
`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want),
		"kubelet_container_requested_resizes_total"); err != nil {
		t.Error(err)
	}
	s.took(70*time.Millisecond, nil)
	s.took(3*time.Second, errors.New("busy"))
	if n := testutil.CollectAndCount(s.duration); n != 2 {
		t.Errorf("durations of %d kinds, want those that succeed and those that do not", n)
	}
}

// TestWaitingResizes checks that pending and unfinished resizes are counted by the conditions of
// pods.
func TestWaitingResizes(t *testing.T) {
	with := func(conditions ...v1.PodCondition) *v1.Pod {
		return &v1.Pod{Status: v1.PodStatus{Conditions: conditions}}
	}
	pending := func(reason string) v1.PodCondition { return v1.PodCondition{Type: v1.PodResizePending, Reason: reason} }
	important := with(pending(v1.PodReasonDeferred))
	important.Spec.Priority = new(int32(100_000))
	list := []*v1.Pod{
		important, with(pending(v1.PodReasonDeferred)),
		with(pending(v1.PodReasonDeferred), v1.PodCondition{Type: v1.PodResizeInProgress}),
		with(pending(v1.PodReasonInfeasible)), with(v1.PodCondition{Type: v1.PodReady}),
	}
	want := `
# HELP kubelet_pod_in_progress_resizes [ALPHA] Number of in-progress resizes for pods.
# TYPE kubelet_pod_in_progress_resizes gauge
kubelet_pod_in_progress_resizes 1
# HELP kubelet_pod_pending_resizes [ALPHA] Number of pending resizes for pods.
# TYPE kubelet_pod_pending_resizes gauge
kubelet_pod_pending_resizes{priority_bucket="high",reason="deferred"} 1
kubelet_pod_pending_resizes{priority_bucket="normal",reason="deferred"} 2
kubelet_pod_pending_resizes{priority_bucket="normal",reason="infeasible"} 1
`
	if err := testutil.CollectAndCompare(&waitingResizes{func() []*v1.Pod { return list }},
		strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestPriorityBucket(t *testing.T) {
	for priority, want := range map[int32]string{
		2_000_001_000: "system-critical", 2_000_000_000: "system-critical", 1_999_999_999: "high", 100_000: "high",
		99_999: "medium", 1: "medium", 0: "normal", -1: "low", -999: "low", -1000: "very-low", -2_000_000_000: "very-low",
	} {
		if got := priorityBucket(&v1.Pod{Spec: v1.PodSpec{Priority: &priority}}); got != want {
			t.Errorf("priority %d: %s, want %s", priority, got, want)
		}
	}
	if got := priorityBucket(&v1.Pod{}); got != "normal" {
		t.Errorf("no priority: %s", got)
	}
}
