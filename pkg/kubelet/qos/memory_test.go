// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func podOf(request, limit string) *v1.Pod {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	if request != "" {
		r.Requests[v1.ResourceMemory], r.Requests[v1.ResourceCPU] = resource.MustParse(request), resource.MustParse("1")
	}
	if limit != "" {
		r.Limits[v1.ResourceMemory], r.Limits[v1.ResourceCPU] = resource.MustParse(limit), resource.MustParse("1")
	}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: r}}}}
}

// whole sets the pod-level memory request and limit of a pod. A limit also sets a CPU request and limit.
func whole(pod *v1.Pod, request, limit string) *v1.Pod {
	r := &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}}
	if limit != "" {
		cpu := resource.MustParse("1")
		r.Requests[v1.ResourceCPU] = cpu
		r.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit), v1.ResourceCPU: cpu}
	}
	pod.Spec.Resources = r
	return pod
}

// TestPodHigh checks the memory.high of cgroups of pods, which only pods with pod-level resources have.
func TestPodHigh(t *testing.T) {
	const gi = 1 << 30
	node := Node{Unified: true, Period: time.Second, Protection: Protection{Throttling: 0.5, Allocatable: 8 * gi}}
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want int64
	}{
		"no pod-level resources":               {podOf("1Gi", "2Gi"), 0},
		"limit of the pod":                     {whole(podOf("1Gi", ""), "1Gi", "4Gi"), 5 * gi / 2},
		"limits of the containers":             {whole(podOf("1Gi", "3Gi"), "1Gi", ""), 2 * gi},
		"request equal to limit":               {whole(podOf("1Gi", ""), "4Gi", "4Gi"), -1},
		"no limit":                             {whole(podOf("1Gi", ""), "1Gi", ""), -1},
		"no resources of CPU or memory at all": {podOf("", ""), 0},
	} {
		if got := Pod(c.pod, node).High; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if got := Pod(c.pod, Node{Unified: true, Period: time.Second}).High; got != 0 {
			t.Errorf("%s, without a throttling factor: %d", name, got)
		}
	}
	for _, c := range [][3]int64{{0, 0, 0}, {1, 2, 2}, {2, 1, 2}, {-1, 1, -1}, {1, -1, -1}, {-1, -1, -1}} {
		if got := Larger(PodLimits{High: c[0]}, PodLimits{High: c[1]}).High; got != c[2] {
			t.Errorf("larger of %d and %d: %d", c[0], c[1], got)
		}
	}
}

// TestUnified checks the settings that exist only with cgroup v2.
func TestUnified(t *testing.T) {
	const gi = 1 << 30
	swap := Swap{Controller: true, Limited: true, Capacity: 2 * gi}
	protect := Protection{Throttling: 0.5, Reserve: true, Allocatable: 4 * gi}
	critical := podOf("1Gi", "2Gi")
	priority := int32(nodeCritical - 1000)
	critical.Spec.Priority = &priority
	for name, c := range map[string]struct {
		pod  *v1.Pod
		node Node
		want map[string]string
	}{
		"cgroup v1": {podOf("1Gi", "2Gi"), Node{Swap: swap, Protection: protect}, nil},
		"kernel without swap accounting": {podOf("1Gi", "2Gi"),
			Node{Unified: true, SingleProcessOOMKill: true}, map[string]string{}},
		"no swap": {podOf("1Gi", "2Gi"),
			Node{Unified: true, Swap: Swap{Controller: true, Capacity: gi}},
			map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}},
		"a share of the swap": {podOf("1Gi", "2Gi"),
			Node{Unified: true, Memory: 8 * gi, Swap: swap, SingleProcessOOMKill: true},
			map[string]string{"memory.swap.max": "268435456"}},
		"no swap for guaranteed pods": {podOf("1Gi", "1Gi"),
			Node{Unified: true, Memory: 8 * gi, Swap: swap, SingleProcessOOMKill: true},
			map[string]string{"memory.swap.max": "0"}},
		"no swap without a memory request": {podOf("", ""),
			Node{Unified: true, Memory: 8 * gi, Swap: swap, SingleProcessOOMKill: true},
			map[string]string{"memory.swap.max": "0"}},
		"no swap for critical pods": {critical,
			Node{Unified: true, Memory: 8 * gi, Swap: swap, SingleProcessOOMKill: true},
			map[string]string{"memory.swap.max": "0"}},
		"guaranteed memory": {podOf("1Gi", "1Gi"),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true}, map[string]string{"memory.min": "1073741824"}},
		"burstable memory": {podOf("1Gi", "2Gi"),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.low": "1073741824", "memory.high": "1610612736"}},
		"memory without a limit": {podOf("2Gi", ""),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.low": "2147483648", "memory.high": "3221225472"}},
		"the pod has a limit, the container none": {whole(podOf("1Gi", ""), "1Gi", "4Gi"),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.low": "1073741824"}},
		"the pod and the container have a limit": {whole(podOf("1Gi", "2Gi"), "1Gi", "4Gi"),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.low": "1073741824", "memory.high": "1610612736"}},
		"the pod has only a request": {whole(podOf("1Gi", ""), "1Gi", ""),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.low": "1073741824", "memory.high": "2684354560"}},
		"guaranteed pod, container requests less than its limit": {whole(podOf("1Gi", "2Gi"), "4Gi", "4Gi"),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.min": "1073741824", "memory.high": "1610612736"}},
		"best effort": {podOf("", ""),
			Node{Unified: true, Protection: protect, SingleProcessOOMKill: true},
			map[string]string{"memory.high": "2147483648"}},
	} {
		c.node.Period = 100 * time.Millisecond
		if got := Container(c.pod, &c.pod.Spec.Containers[0], c.node).Unified; !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestHugePagesOfPods(t *testing.T) {
	pod := podOf("1Gi", "1Gi")
	pod.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("8Mi")
	got := Pod(pod, Node{HugePages: []int64{2 << 20, 1 << 30}, Period: time.Second}).HugePages
	if want := map[string]int64{"2MB": 8 << 20, "1GB": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := HugePages(2<<20), v1.ResourceName("hugepages-2Mi"); got != want {
		t.Errorf("2 MiB are %s", got)
	}
}
