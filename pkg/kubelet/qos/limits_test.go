// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

func list(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func podOf(containers ...v1.ResourceRequirements) *v1.Pod {
	pod := &v1.Pod{}
	for _, r := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
	}
	return pod
}

func both(cpu, memory string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: list(cpu, memory), Limits: list(cpu, memory)}
}

func value(p *int64) int64 {
	if p == nil {
		return -99
	}
	return *p
}

func TestLimits(t *testing.T) {
	node := qos.Node{Memory: 1 << 30, CFSQuota: true, Period: 100 * time.Millisecond}
	small, large := podOf(both("100m", "64Mi")), podOf(both("300m", "32Mi"))
	open := podOf(v1.ResourceRequirements{Requests: list("200m", "")})
	for name, tc := range map[string]struct {
		got                   qos.PodLimits
		shares, quota, memory int64
	}{
		"guaranteed":  {qos.Pod(small, node), 102, 10000, 64 << 20},
		"no limits":   {qos.Pod(open, node), 204, -99, -99},
		"best effort": {qos.Pod(podOf(v1.ResourceRequirements{}), node), 2, -99, -99},
		"one container without a limit": {
			qos.Pod(podOf(both("100m", "64Mi"), v1.ResourceRequirements{Requests: list("100m", "64Mi"),
				Limits: list("100m", "")}), node), 204, 20000, -99,
		},
		"larger of each":           {qos.Larger(qos.Pod(small, node), qos.Pod(large, node)), 307, 30000, 64 << 20},
		"limited and unlimited":    {qos.Larger(qos.Pod(small, node), qos.Pod(open, node)), 204, -1, -1},
		"neither is limited":       {qos.Larger(qos.Pod(open, node), qos.Pod(open, node)), 204, -99, -99},
		"larger of each, reversed": {qos.Larger(qos.Pod(large, node), qos.Pod(small, node)), 307, 30000, 64 << 20},
	} {
		if s, q, m := value(tc.got.Shares), value(tc.got.Quota), value(tc.got.Memory); s != tc.shares ||
			q != tc.quota || m != tc.memory {
			t.Errorf("%s: shares %d, quota %d, memory %d; want %d, %d, %d", name, s, q, m, tc.shares, tc.quota, tc.memory)
		}
		if tc.got.Quota != nil && tc.got.Period == nil {
			t.Errorf("%s: a quota without a period", name)
		}
	}
}
