// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/node"
)

func TestCheckEnforced(t *testing.T) {
	for name, c := range map[string]struct {
		config kubeletconfig.KubeletConfiguration
		ok     bool
	}{
		"nothing": {kubeletconfig.KubeletConfiguration{}, true},
		"pods":    {kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"pods"}}, true},
		"none":    {kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"none"}}, true},
		"none and pods": {
			kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"none", "pods"}}, false},
		"unknown value": {kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"other"}}, false},
		"system": {
			kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"system-reserved"},
				SystemReservedCgroup: "/system"}, true},
		"system without cgroup": {
			kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"system-reserved"}}, false},
		"kube, CPUs alone": {
			kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"kube-reserved-compressible"}}, false},
	} {
		if err := checkEnforced(&c.config); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEnforced checks that the limit of all pods together excludes what is reserved for the system
// and Kubernetes, but includes the amount that eviction keeps free.
func TestEnforced(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		EnforceNodeAllocatable: []string{"pods", "system-reserved", "kube-reserved-compressible"},
		SystemReserved:         map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "1000"},
		SystemReservedCgroup:   "/system",
		KubeReserved:           map[string]string{"cpu": "250m", "memory": "1Gi"}, KubeReservedCgroup: "/kube",
		EvictionHard: map[string]string{"memory.available": "100Mi"},
	}
	m := node.Machine{CPUs: 4, Memory: 8 << 30, MaxPIDs: 32768, HugePages: map[int64]int64{2 << 20: 1 << 30}}
	capacity := m.Capacity(110)
	kept, err := reservations(c, capacity)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxPods = 110
	got := enforce(c, m, kept)
	p := got.pods
	if *p.Shares != 3328 || *p.Memory != 5<<30 || p.Pids != 31768 || p.HugePages["2MB"] != 1<<30 {
		t.Errorf("pods: %d shares, %d bytes, %d processes, %v", *p.Shares, *p.Memory, p.Pids, p.HugePages)
	}
	if s := got.others["/system"]; *s.Shares != 512 || *s.Memory != 1<<30 || s.Pids != 1000 {
		t.Errorf("system: %+v", s)
	}
	if s := got.others["/kube"]; *s.Shares != 256 || s.Memory != nil {
		t.Errorf("kube: %+v", s)
	}
	allocatable := node.Allocatable(capacity, kept.list)
	if got, want := allocatable[v1.ResourceMemory], resource.MustParse("5020Mi"); got.Cmp(want) != 0 {
		t.Errorf("allocatable memory %s, want %s", got.String(), want.String())
	}
	if got := allocatable["hugepages-2Mi"]; got.Value() != 1<<30 {
		t.Errorf("allocatable huge pages %s", got.String())
	}
}
