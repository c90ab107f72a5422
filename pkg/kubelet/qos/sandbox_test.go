// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// TestSandbox checks that the size of a pod's virtual machine does not include the overhead.
func TestSandbox(t *testing.T) {
	n := qos.Node{Memory: 1 << 34, CFSQuota: true, Period: 100 * time.Millisecond}
	show := func(r *runtimeapi.LinuxContainerResources) string {
		return fmt.Sprintf("%d shares, %d of %d, %d bytes, %v", r.CpuShares, r.CpuQuota, r.CpuPeriod,
			r.MemoryLimitInBytes, r.Unified)
	}
	pod := podOf(both("500m", "64Mi"), both("1", "64Mi"))
	pod.Spec.Overhead = list("250m", "32Mi")
	plain := podOf(v1.ResourceRequirements{})
	unified := n
	unified.Unified = true
	held := n
	held.CFSQuota = false
	for name, c := range map[string]struct{ got, want string }{
		"sum of containers": {show(qos.Sandbox(pod, n)), "1536 shares, 150000 of 100000, 134217728 bytes, map[]"},
		"exclusive CPUs":    {show(qos.Sandbox(pod, held)), "1536 shares, 0 of 0, 134217728 bytes, map[]"},
		"besides":           {show(qos.Overhead(pod, n)), "256 shares, 25000 of 100000, 33554432 bytes, map[]"},
		"no requests":       {show(qos.Sandbox(plain, n)), "2 shares, 0 of 100000, 0 bytes, map[]"},
		"no overhead":       {show(qos.Overhead(plain, n)), "0 shares, 0 of 0, 0 bytes, map[]"},
		"cgroup v2":         {show(qos.Sandbox(plain, unified)), "2 shares, 0 of 100000, 0 bytes, map[memory.oom.group:1]"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}
