// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
	"keelson.dev/keelson/pkg/kubelet/eviction"
)

// setNodeTotals replaces the sums over all pods by the usage of the whole node, as far as the root
// cgroup provides it. The sum of the pods' CPU time decreases when a pod is removed, but the CPU
// time of the root cgroup never decreases.
func (u *usage) setNodeTotals(n *statsapi.NodeStats, now metav1.Time) {
	r := cgroupReader()
	root := r.Read(u.cfg.Kubelet.CgroupRoot)
	if cpu, _ := groupStats(root, now); cpu != nil {
		if rate := u.rates.observe("node", now.Time, *cpu.UsageCoreNanoSeconds); rate != nil {
			n.CPU.UsageNanoCores = rate
		}
		n.CPU.UsageCoreNanoSeconds = cpu.UsageCoreNanoSeconds
	}
	capacity := uint64(max(u.machine.Memory, 0))
	if _, memory := groupStats(root, now); memory != nil {
		n.Memory = memory
	} else if a, err := eviction.Memory(); err == nil { // with cgroup v2, the root cgroup has no file memory.current
		used := uint64(max(a.Capacity-a.Available, 0))
		n.Memory.WorkingSetBytes, n.Memory.UsageBytes = &used, &used
	}
	n.Memory.AvailableBytes = remaining(capacity, value(n.Memory.WorkingSetBytes))
	n.SystemContainers = u.systemStats(r, u.systemGroups(r), now)
}

func remaining(capacity, used uint64) *uint64 {
	rest := capacity - min(used, capacity)
	return &rest
}

// groupStats converts the usage of a cgroup to the form of the API. Either result is nil if the
// cgroup does not provide the values for it.
func groupStats(g stat.Usage, now metav1.Time) (*statsapi.CPUStats, *statsapi.MemoryStats) {
	var cpu *statsapi.CPUStats
	if g.CPU != nil {
		total := uint64(max(g.CPU.Total, 0))
		cpu = &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &total}
	}
	m := g.Memory
	if m == nil {
		return cpu, nil
	}
	return cpu, &statsapi.MemoryStats{
		Time: now, UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet, RSSBytes: &m.RSS,
		PageFaults: &m.Faults, MajorPageFaults: &m.MajorFaults,
	}
}
