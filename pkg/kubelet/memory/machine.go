// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// The types in the file have the names of Kubernetes' types, because the checksum is computed from
// a printed form that contains the names.

// MemoryTable is the state of one resource (memory, or huge pages of one size) on a node, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"` // bytes that are assigned to containers
	Free           uint64 `json:"free"`
}

// NUMANodeState is the state of a NUMA node.
type NUMANodeState struct {
	NumberOfAssignments int                              `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	// Cells are the nodes that serve reservations together with this node, including this node.
	Cells []int `json:"cells"`
}

// NUMANodeMap contains the state of each NUMA node by its number.
type NUMANodeMap map[int]*NUMANodeState

// Block is the amount of one resource that is reserved for a container, and the NUMA nodes that
// provide it.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments contains the blocks of containers, by the pod's UID and the
// container's name.
type ContainerMemoryAssignments map[string]map[string][]Block

// machine returns the state of a machine without reservations for containers.
func machine(l *numa.Layout, reserved map[int]map[v1.ResourceName]uint64) NUMANodeMap {
	out := NUMANodeMap{}
	for _, n := range l.Nodes {
		s := &NUMANodeState{MemoryMap: map[v1.ResourceName]*MemoryTable{}, Cells: []int{n.ID}}
		set := func(name v1.ResourceName, total, elsewhere uint64) {
			kept := reserved[n.ID][name]
			can := total - min(total, kept+elsewhere)
			s.MemoryMap[name] = &MemoryTable{TotalMemSize: total, SystemReserved: kept, Allocatable: can, Free: can}
		}
		pages := uint64(0)
		for size, bytes := range n.HugePages {
			set(hugePages(size), bytes, 0)
			pages += bytes
		}
		set(v1.ResourceMemory, n.Memory, pages)
		out[n.ID] = s
	}
	return out
}

func hugePages(size uint64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(int64(size), resource.BinarySI).String())
}

// free returns how many bytes of a resource are unassigned on a set of NUMA nodes.
func (s NUMANodeMap) free(nodes numa.Mask, name v1.ResourceName) uint64 {
	return s.sum(nodes, name, func(t *MemoryTable) uint64 { return t.Free })
}

func (s NUMANodeMap) allocatable(nodes numa.Mask, name v1.ResourceName) uint64 {
	return s.sum(nodes, name, func(t *MemoryTable) uint64 { return t.Allocatable })
}

func (s NUMANodeMap) sum(nodes numa.Mask, name v1.ResourceName, f func(*MemoryTable) uint64) uint64 {
	total := uint64(0)
	for _, id := range nodes.Nodes() {
		if n := s[id]; n != nil && n.MemoryMap[name] != nil {
			total += f(n.MemoryMap[name])
		}
	}
	return total
}

// apart reports whether a set of nodes must not be used, because one of its nodes is already used
// alone or in another set.
func (s NUMANodeMap) apart(nodes numa.Mask) bool {
	if nodes.Count() == 1 {
		return false
	}
	return slices.ContainsFunc(nodes.Nodes(), func(id int) bool {
		return s[id].NumberOfAssignments > 0 && numa.MaskOf(s[id].Cells...) != nodes
	})
}

// grouped reports whether a NUMA node is used in a set with other NUMA nodes.
func (s NUMANodeMap) grouped(node int) bool { return len(s[node].Cells) > 1 }

// give assigns size bytes of a resource. It takes as much as possible from the first node, then
// from the next.
func (s NUMANodeMap) give(nodes []int, name v1.ResourceName, size uint64) {
	for _, id := range nodes {
		n := s[id]
		n.NumberOfAssignments++
		n.Cells = nodes
		t := n.MemoryMap[name]
		if t == nil {
			continue
		}
		some := min(size, t.Free)
		t.Free -= some
		t.Reserved += some
		size -= some
	}
}

// takeBack reverses a call of give with the same arguments.
func (s NUMANodeMap) takeBack(nodes []int, name v1.ResourceName, size uint64) {
	for _, id := range nodes {
		n := s[id]
		if n == nil {
			continue
		}
		if n.NumberOfAssignments--; n.NumberOfAssignments == 0 {
			n.Cells = []int{id}
		}
		t := n.MemoryMap[name]
		if t == nil {
			continue
		}
		some := min(size, t.Reserved)
		t.Free += some
		t.Reserved -= some
		size -= some
	}
}

// fits reports whether two states have the same nodes and resources, and the same assignments for
// each set of nodes. The shares of the nodes within a set may differ.
func (s NUMANodeMap) fits(o NUMANodeMap) bool {
	if !slices.Equal(slices.Sorted(maps.Keys(s)), slices.Sorted(maps.Keys(o))) {
		return false
	}
	for id, a := range s {
		b := o[id]
		if a.NumberOfAssignments != b.NumberOfAssignments ||
			numa.MaskOf(a.Cells...) != numa.MaskOf(b.Cells...) || len(a.MemoryMap) != len(b.MemoryMap) {
			return false
		}
		group := numa.MaskOf(a.Cells...)
		for name, x := range a.MemoryMap {
			y := b.MemoryMap[name]
			if y == nil || x.TotalMemSize != y.TotalMemSize || x.SystemReserved != y.SystemReserved ||
				x.Allocatable != y.Allocatable ||
				s.free(group, name) != o.free(group, name) {
				return false
			}
		}
	}
	return true
}
