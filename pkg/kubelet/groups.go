// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/cadvisor"
	"keelson.dev/keelson/pkg/kubelet/cgroup/stat"
	"keelson.dev/keelson/pkg/kubelet/cri"
)

// series returns the collector of the metrics that the kubelet serves at /metrics/cadvisor.
func (u *usage) series() cadvisor.Collector {
	return cadvisor.Collector{
		Machine: cadvisor.Machine{CPUs: u.machine.CPUs, Memory: u.machine.Memory, Swap: u.machine.Swap, Info: u.machine.Info},
		Groups:  u.groups, Read: cgroupReader().Read, Network: func(pid int) []stat.Interface {
			return stat.Network("/proc", pid)
		},
		Clock: u.cfg.Clock, Log: u.cfg.Log,
	}
}

// groups returns the root cgroup and the cgroups of QoS classes, pods and running containers.
func (u *usage) groups(ctx context.Context) ([]cadvisor.Group, error) {
	out := []cadvisor.Group{{ID: "/"}}
	for _, id := range u.cgroups.Groups() {
		out = append(out, cadvisor.Group{ID: id})
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods := map[types.UID]*v1.Pod{}
	for _, pod := range u.sources.all() {
		pods[pod.UID] = pod
	}
	boxes, err := u.runtime.client.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{
			State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return out, fmt.Errorf("list sandboxes: %s", cri.Message(err))
	}
	for _, box := range boxes.GetItems() {
		pod := pods[types.UID(box.GetMetadata().GetUid())]
		if pod == nil {
			continue
		}
		g := cadvisor.Group{ID: u.cgroups.Group(pod), Namespace: pod.Namespace, Pod: pod.Name}
		if !pod.Spec.HostNetwork {
			if pids := cgroupReader().Read(u.cgroups.GroupOf(pod, box.GetId())).Processes; len(pids) > 0 {
				g.PID = pids[0]
			}
		}
		if pod.Status.StartTime != nil {
			g.Started = pod.Status.StartTime.Time
		}
		out = append(out, g)
	}
	containers, err := u.containerGroups(ctx, pods)
	return append(out, containers...), err
}

func (u *usage) containerGroups(ctx context.Context, pods map[types.UID]*v1.Pod) ([]cadvisor.Group, error) {
	list, err := u.runtime.client.Runtime.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %s", cri.Message(err))
	}
	layers := map[string]*uint64{}
	stats, err := u.runtime.client.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		u.cfg.Log.Debug("Failed to measure the writable layers of containers", "err", cri.Message(err))
	}
	for _, s := range stats.GetStats() {
		layers[s.GetAttributes().GetId()] = number(s.GetWritableLayer().GetUsedBytes())
	}
	var out []cadvisor.Group
	for _, c := range list.GetContainers() {
		pod := pods[types.UID(c.GetLabels()[cri.LabelPodUID])]
		if pod == nil {
			continue
		}
		g := cadvisor.Group{
			ID: u.cgroups.GroupOf(pod, c.GetId()), Container: c.GetLabels()[cri.LabelContainerName],
			Image: c.GetImage().GetUserSpecifiedImage(),
			Name:  c.GetId(), Namespace: pod.Namespace, Pod: pod.Name, Started: time.Unix(0, c.GetCreatedAt()),
			Disk: layers[c.GetId()],
		}
		if g.Image == "" {
			g.Image = c.GetImageRef()
		}
		out = append(out, g)
	}
	return out, nil
}

// waits adds a cgroup's pressure stall information for CPU and memory to the statistics cpu and
// memory, and returns its pressure stall information for I/O. It skips a resource for which the
// kernel provides none.
func waits(p map[string]stat.Pressure, now time.Time, cpu *statsapi.CPUStats,
	memory *statsapi.MemoryStats) *statsapi.IOStats {
	if v, ok := p["cpu"]; ok && cpu != nil {
		cpu.PSI = psi(v)
	}
	if v, ok := p["memory"]; ok && memory != nil {
		memory.PSI = psi(v)
	}
	if v, ok := p["io"]; ok {
		return &statsapi.IOStats{Time: metav1.NewTime(now), PSI: psi(v)}
	}
	return nil
}

func psi(p stat.Pressure) *statsapi.PSIStats {
	of := func(w stat.Waiting) statsapi.PSIData {
		return statsapi.PSIData{Total: uint64(w.Total), Avg10: w.Avg10, Avg60: w.Avg60, Avg300: w.Avg300}
	}
	return &statsapi.PSIStats{Full: of(p.Full), Some: of(p.Some)}
}
