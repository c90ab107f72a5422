// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/memory"
	"keelson.dev/keelson/pkg/kubelet/numa"
	"keelson.dev/keelson/pkg/kubelet/podresources"
)

// assigned reports the hardware that is assigned to containers. It serves the pod resources API.
type assigned struct {
	pods     *podView
	hardware *hardware
}

var _ podresources.Source = assigned{}

// Pods implements podresources.Source. It returns the node's pods that have not ended.
func (a assigned) Pods() []*v1.Pod { return a.pods.live() }

// Container implements podresources.Source. It returns the hardware that is assigned to the
// container.
func (a assigned) Container(pod *v1.Pod, c *v1.Container) *api.ContainerResources {
	h := a.hardware
	out := &api.ContainerResources{
		Devices: devicesOf(h.devices.Assigned(pod.UID, c.Name)),
		CpuIds:  cpuIDs(h.cpus.ExclusiveCPUs(pod.UID, c.Name)), Memory: memoryOf(h.memory.Blocks(pod.UID, c.Name)),
	}
	for _, claim := range h.claims.Devices(pod, c) {
		named := &api.DynamicResource{ClaimName: claim.Name, ClaimNamespace: claim.Namespace}
		for _, d := range claim.Devices {
			one := &api.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name, ShareId: d.Share}
			for _, name := range d.CDI {
				one.CdiDevices = append(one.CdiDevices, &api.CDIDevice{Name: name})
			}
			named.ClaimResources = append(named.ClaimResources, one)
		}
		out.DynamicResources = append(out.DynamicResources, named)
	}
	return out
}

// Allocatable implements podresources.Source. It returns the hardware that can be assigned to
// containers.
func (a assigned) Allocatable() *api.AllocatableResourcesResponse {
	h := a.hardware
	return &api.AllocatableResourcesResponse{
		Devices: devicesOf(h.devices.Allocatable()), CpuIds: cpuIDs(h.cpus.Allocatable()),
		Memory: memoryOf(h.memory.Allocatable()),
	}
}

// devicesOf converts devices to the API's form. The keys of list are the resource and the device
// ID; the values are the NUMA nodes of the device.
func devicesOf(list map[string]map[string]numa.Mask) []*api.ContainerDevices {
	var out []*api.ContainerDevices
	for _, name := range slices.Sorted(maps.Keys(list)) {
		for _, id := range slices.Sorted(maps.Keys(list[name])) {
			out = append(out, &api.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: near(list[name][id])})
		}
	}
	return out
}

func memoryOf(blocks []memory.Block) []*api.ContainerMemory {
	var out []*api.ContainerMemory
	for _, b := range blocks {
		out = append(out, &api.ContainerMemory{MemoryType: string(b.Type), Size: b.Size,
			Topology: near(numa.MaskOf(b.NUMAAffinity...))})
	}
	return out
}

// near converts a set of NUMA nodes to the form of the pod resources API. It returns nil if the set
// is empty.
func near(nodes numa.Mask) *api.TopologyInfo {
	if nodes == 0 {
		return nil
	}
	out := &api.TopologyInfo{}
	for _, id := range nodes.Nodes() {
		out.Nodes = append(out.Nodes, &api.NUMANode{ID: int64(id)})
	}
	return out
}

func cpuIDs(set cpuset.CPUSet) []int64 {
	var out []int64
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}
