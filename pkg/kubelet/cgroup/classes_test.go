// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// burstable returns a Burstable pod, whose requests are lower than its limits.
func burstable(cpu, memory string) *v1.Pod {
	pod := podOf(cpu, memory)
	c := &pod.Spec.Containers[0].Resources
	c.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("8Gi")}
	return pod
}

// TestShare checks that the Burstable class gets as many CPU shares as its pods request. It also
// checks the memory protection of the classes if the configuration protects memory.
func TestShare(t *testing.T) {
	pods := []*v1.Pod{podOf("2", "1Gi"), burstable("500m", "1Gi"), burstable("1500m", "2Gi"), {}}
	t.Run("v1", func(t *testing.T) {
		m, mount := manager(t, false, false, "cpu", "memory", "pids")
		if err := m.Setup(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"2048", "2"} {
			if err := m.Share(pods); err != nil {
				t.Fatal(err)
			}
			if got := content(t, mount, "cpu/keelson/kubepods/burstable/cpu.shares"); got != want {
				t.Errorf("shares of %d pods: %s, want %s", len(pods), got, want)
			}
			pods = pods[:1]
		}
	})
	t.Run("v2, memory protected", func(t *testing.T) {
		mount := t.TempDir()
		if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := cgroup.New(cgroup.Config{Mount: mount, Root: "/",
			Node: qos.Node{Unified: true, Period: time.Second, Protection: qos.Protection{Throttling: 0.9, Reserve: true}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Setup(); err != nil {
			t.Fatal(err)
		}
		if err := m.Share([]*v1.Pod{podOf("2", "1Gi"), burstable("500m", "1Gi"), burstable("500m", "2Gi")}); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{
			"kubepods/burstable/cpu.weight": "39", "kubepods/memory.min": "1073741824",
			"kubepods/memory.low": "3221225472", "kubepods/burstable/memory.low": "3221225472",
		} {
			if got := content(t, mount, file); got != want {
				t.Errorf("%s: %s, want %s", file, got, want)
			}
		}
		guaranteed := podOf("1", "1Gi")
		if err := m.Ensure(guaranteed); err != nil {
			t.Fatal(err)
		}
		if got := content(t, mount, "kubepods/poda-b/memory.min"); got != "1073741824" {
			t.Errorf("of the pod: %s", got)
		}
		whole := burstable("500m", "1Gi")
		whole.UID = "whole"
		whole.Spec.Resources = &v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
			Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("11Gi")},
		}
		for _, want := range []string{"10737418240", "max"} {
			if err := m.Ensure(whole); err != nil {
				t.Fatal(err)
			}
			if got := content(t, mount, "kubepods/burstable/podwhole/memory.high"); got != want {
				t.Errorf("memory.high of the pod: %s, want %s", got, want)
			}
			whole.Spec.Resources.Requests = whole.Spec.Resources.Limits // as after a resize
		}
		// The kubelet restarts, and its configuration no longer protects memory.
		m, err = cgroup.New(cgroup.Config{Mount: mount, Root: "/", Node: qos.Node{Unified: true, Period: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Setup(), m.Share([]*v1.Pod{guaranteed})); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"memory.min", "memory.low", "burstable/memory.low"} {
			if got := content(t, mount, "kubepods", file); got != "0" {
				t.Errorf("%s without a reservation: %s", file, got)
			}
		}
	})
}

// TestEnforce checks the limits of the cgroup of all pods, and those of the system's cgroups.
func TestEnforce(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	limits := &qos.PodLimits{Shares: number(1536), Memory: number(3 << 30), Pids: 1000,
		HugePages: map[string]int64{"2MB": 4 << 20}}
	others := map[string]qos.PodLimits{"/system": {Shares: number(512), Memory: number(1 << 30)}}
	for name, c := range map[string]struct {
		unified bool
		dirs    []string
		want    map[string]string
	}{
		"v1": {false, []string{"cpu", "memory", "pids", "hugetlb", "cpu/system", "memory/system"}, map[string]string{
			"cpu/n/kubepods/cpu.shares": "1536", "memory/n/kubepods/memory.limit_in_bytes": "3221225472",
			"pids/n/kubepods/pids.max":                      "1000",
			"hugetlb/n/kubepods/hugetlb.2MB.limit_in_bytes": "4194304", "cpu/system/cpu.shares": "512",
			"memory/system/memory.limit_in_bytes": "1073741824",
		}},
		"v2": {true, []string{"system"}, map[string]string{
			"n/kubepods/cpu.weight": "59", "n/kubepods/memory.max": "3221225472", "n/kubepods/pids.max": "1000",
			"n/kubepods/hugetlb.2MB.max": "4194304", "system/memory.max": "1073741824",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			for _, d := range c.dirs {
				if err := os.MkdirAll(filepath.Join(mount, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if c.unified {
				if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpu memory"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := cgroup.New(cgroup.Config{Mount: mount, Root: "/n", Pods: limits, Others: others})
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Setup(); err != nil {
				t.Fatal(err)
			}
			for file, want := range c.want {
				if got := content(t, mount, file); got != want {
					t.Errorf("%s: %s, want %s", file, got, want)
				}
			}
			missing, err := cgroup.New(cgroup.Config{Mount: mount, Root: "/n", Others: map[string]qos.PodLimits{"/nobody": {}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := missing.Setup(); err == nil {
				t.Error("no error for a system cgroup that does not exist")
			}
		})
	}
}
