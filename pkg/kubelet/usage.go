// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/server"
)

// usage measures the resource usage of the node and its pods. Most values of pods are those that
// the container runtime reports.
type usage struct {
	cfg       Config
	begun     time.Time // start time of the kubelet
	machine   node.Machine
	podMemory int64 // memory limit of all pods together in bytes; 0 if there is no limit
	runtime   *runtime
	sources   *sources
	cgroups   *cgroup.Manager
	volumes   interface {
		Stats(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error)
	}
	rates rates
}

var _ server.Stats = (*usage)(nil)

// Summary implements server.Stats. It returns the usage of the node and all pods.
func (u *usage) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	list, err := u.runtime.client.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("statistics of the runtime: %w", err)
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: u.cfg.NodeName}}
	specs := map[types.UID]*v1.Pod{}
	for _, pod := range u.sources.all() {
		specs[pod.UID] = pod
	}
	now := metav1.NewTime(u.cfg.Clock.Now())
	if !onlyCPUAndMemory {
		u.disks(ctx, &s.Node, now)
		s.Node.Network = nodeNetwork(stat.Network("/proc", os.Getpid()), now)
	}
	var cpu, nanocores, memory uint64
	for _, item := range list.Stats {
		pod := podStats(item)
		u.rates.pod(item, &pod)
		u.waiting(item, &pod, specs[types.UID(pod.PodRef.UID)])
		setStartTimes(&pod, specs[types.UID(pod.PodRef.UID)])
		if !onlyCPUAndMemory {
			if err := u.storage(ctx, &pod, specs[types.UID(pod.PodRef.UID)]); err != nil {
				return nil, err
			}
			rooms(&pod, s.Node.Fs, s.Node.Runtime.ImageFs)
		}
		if c := pod.CPU; c != nil {
			cpu, nanocores = cpu+value(c.UsageCoreNanoSeconds), nanocores+value(c.UsageNanoCores)
		}
		if m := pod.Memory; m != nil {
			memory += value(m.WorkingSetBytes)
		}
		s.Pods = append(s.Pods, pod)
	}
	s.Node.CPU = &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: &cpu, UsageNanoCores: &nanocores}
	s.Node.Memory = &statsapi.MemoryStats{Time: now, WorkingSetBytes: &memory, UsageBytes: &memory}
	u.setNodeTotals(&s.Node, now)
	s.Node.IO = waits(stat.MachinePressures(), now.Time, s.Node.CPU, s.Node.Memory)
	u.swap(&s.Node, now)
	s.Node.StartTime = metav1.NewTime(u.machine.Booted)
	return s, nil
}

// waiting adds how long processes of the pod and of its containers waited for resources (pressure
// stall information).
func (u *usage) waiting(item *runtimeapi.PodSandboxStats, s *statsapi.PodStats, pod *v1.Pod) {
	if pod == nil {
		return
	}
	r, now := cgroupReader(), u.cfg.Clock.Now()
	s.IO = waits(r.Pressures(u.cgroups.Group(pod)), now, s.CPU, s.Memory)
	for i, c := range item.GetLinux().GetContainers() {
		of := &s.Containers[i]
		of.IO = waits(r.Pressures(u.cgroups.GroupOf(pod, c.GetAttributes().GetId())), now, of.CPU, of.Memory)
	}
}

// swap adds the used and free swap of the machine to the node's statistics.
func (u *usage) swap(n *statsapi.NodeStats, now metav1.Time) {
	free, err := node.SwapFree()
	if err != nil || u.machine.Swap == 0 {
		return
	}
	used, left := uint64(max(u.machine.Swap-free, 0)), uint64(free)
	n.Swap = &statsapi.SwapStats{Time: now, SwapAvailableBytes: &left, SwapUsageBytes: &used}
}

// podUsage returns the usage of one pod, including its disk usage. It returns nil if the runtime
// does not have the pod.
func (u *usage) podUsage(ctx context.Context, pod *v1.Pod) (*statsapi.PodStats, error) {
	list, err := u.runtime.client.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{
		Filter: &runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)}},
	})
	if err != nil {
		return nil, fmt.Errorf("statistics of the runtime: %w", err)
	}
	if len(list.Stats) == 0 {
		return nil, nil
	}
	s := podStats(list.Stats[0])
	return &s, u.storage(ctx, &s, pod)
}

// setStartTimes adds the start times of the pod and its containers, which it reads from the pod's
// status.
func setStartTimes(s *statsapi.PodStats, pod *v1.Pod) {
	if pod == nil {
		return
	}
	if pod.Status.StartTime != nil {
		s.StartTime = *pod.Status.StartTime
	}
	for i := range s.Containers {
		if st := statusOf(pod, s.Containers[i].Name); st != nil && st.State.Running != nil {
			s.Containers[i].StartTime = st.State.Running.StartedAt
		}
	}
}

func value(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}

func podStats(item *runtimeapi.PodSandboxStats) statsapi.PodStats {
	a, l := item.GetAttributes(), item.GetLinux()
	pod := statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: a.GetMetadata().GetName(),
			Namespace: a.GetMetadata().GetNamespace(), UID: a.GetMetadata().GetUid()},
		CPU: cpuStats(l.GetCpu()), Memory: memoryStats(l.GetMemory()), ProcessStats: processStats(l.GetProcess()),
	}
	for _, c := range l.GetContainers() {
		pod.Containers = append(pod.Containers, statsapi.ContainerStats{
			Name: c.GetAttributes().GetMetadata().GetName(), CPU: cpuStats(c.GetCpu()), Memory: memoryStats(c.GetMemory()),
			Rootfs: fsStats(c.GetWritableLayer()), Swap: swapStats(c.GetSwap()),
		})
		pod.Swap = addSwap(pod.Swap, pod.Containers[len(pod.Containers)-1].Swap)
	}
	if n := l.GetNetwork().GetDefaultInterface(); n != nil {
		pod.Network = &statsapi.NetworkStats{Time: stamp(l.GetNetwork().GetTimestamp()), InterfaceStats: interfaceStats(n)}
		pod.Network.Interfaces = []statsapi.InterfaceStats{pod.Network.InterfaceStats}
		for _, other := range l.GetNetwork().GetInterfaces() {
			if other.GetName() != n.GetName() {
				pod.Network.Interfaces = append(pod.Network.Interfaces, interfaceStats(other))
			}
		}
	}
	return pod
}

func interfaceStats(n *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
	return statsapi.InterfaceStats{
		Name: n.GetName(), RxBytes: number(n.GetRxBytes()), RxErrors: number(n.GetRxErrors()),
		TxBytes: number(n.GetTxBytes()), TxErrors: number(n.GetTxErrors()),
	}
}

// addSwap adds the swap usage of one container to sum, the swap usage of the pod's other
// containers. Either may be nil.
func addSwap(sum, one *statsapi.SwapStats) *statsapi.SwapStats {
	if one == nil || one.SwapUsageBytes == nil {
		return sum
	}
	used := *one.SwapUsageBytes
	if sum != nil {
		used += *sum.SwapUsageBytes
	}
	return &statsapi.SwapStats{Time: one.Time, SwapUsageBytes: &used}
}

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func stamp(nanoseconds int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanoseconds)) }

func cpuStats(c *runtimeapi.CpuUsage) *statsapi.CPUStats {
	if c == nil {
		return nil
	}
	return &statsapi.CPUStats{Time: stamp(c.Timestamp), UsageCoreNanoSeconds: number(c.UsageCoreNanoSeconds),
		UsageNanoCores: number(c.UsageNanoCores)}
}

func memoryStats(m *runtimeapi.MemoryUsage) *statsapi.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: stamp(m.Timestamp), WorkingSetBytes: number(m.WorkingSetBytes),
		AvailableBytes: number(m.AvailableBytes), UsageBytes: number(m.UsageBytes),
		RSSBytes: number(m.RssBytes), PageFaults: number(m.PageFaults), MajorPageFaults: number(m.MajorPageFaults),
	}
}

func swapStats(s *runtimeapi.SwapUsage) *statsapi.SwapStats {
	if s == nil {
		return nil
	}
	return &statsapi.SwapStats{Time: stamp(s.Timestamp), SwapAvailableBytes: number(s.SwapAvailableBytes),
		SwapUsageBytes: number(s.SwapUsageBytes)}
}

func processStats(p *runtimeapi.ProcessUsage) *statsapi.ProcessStats {
	if p == nil {
		return nil
	}
	return &statsapi.ProcessStats{ProcessCount: number(p.ProcessCount)}
}

func fsStats(f *runtimeapi.FilesystemUsage) *statsapi.FsStats {
	if f == nil {
		return nil
	}
	return &statsapi.FsStats{Time: stamp(f.Timestamp), UsedBytes: number(f.UsedBytes), InodesUsed: number(f.InodesUsed)}
}
