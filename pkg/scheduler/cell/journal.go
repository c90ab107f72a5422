// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/scheduling"
)

const (
	maxChanges    = 1 << 13 // maximum number of changes in the journal
	maxTopologies = 64      // maximum number of cached topologies
)

// Change is an entry of the journal: a pod was added to the node (N is 1) or removed from it (N is
// -1), or, if Pod is nil, the node itself changed.
type Change struct {
	Node *scheduling.Node
	Pod  *scheduling.Pod
	N    int
}

// Mark is a position in the journal of the changes of a cell (the scheduler's picture of all nodes
// and pods).
type Mark struct {
	// Layout changes when a node is added or removed. Shape changes then too, and also when a
	// node's labels or taints change.
	Layout, Shape uint64
	seq           uint64
}

// journal stores the latest changes of a cell (the scheduler's picture of all nodes and pods).
type journal struct {
	layout, shape uint64
	base          uint64 // number of the first entry, counted from the creation of the cell
	entries       []Change
}

func (j *journal) add(c Change) {
	if len(j.entries) >= maxChanges {
		drop := len(j.entries) / 2
		j.base += uint64(drop)
		j.entries = slices.Delete(j.entries, 0, drop)
	}
	j.entries = append(j.entries, c)
}

// reshape records a change of the nodes, or of their labels or taints, and drops the cached
// topologies. layout is true if a node was added or removed.
func (c *Cell) reshape(layout bool) {
	j := &c.changes
	j.shape++
	if layout {
		j.layout++
	}
	clear(c.topologies)
}

// Now returns the current position in the journal.
func (c *Cell) Now() Mark {
	j := &c.changes
	return Mark{Layout: j.layout, Shape: j.shape, seq: j.base + uint64(len(j.entries))}
}

// Since returns the changes after position m, oldest first. ok is false if the journal no longer
// has all of them, or if nodes were added or removed. The slice is valid until the cell changes.
func (c *Cell) Since(m Mark) (changes []Change, ok bool) {
	j := &c.changes
	if m.seq < j.base || m.Layout != j.layout {
		return nil, false
	}
	return j.entries[m.seq-j.base:], true
}

// Topology is part of scheduling.View.
func (c *Cell) Topology(key string) *scheduling.Topology {
	if t := c.topologies[key]; t != nil {
		return t
	}
	if len(c.topologies) >= maxTopologies {
		clear(c.topologies) // callers may keep using the topologies that are dropped here
	}
	t := &scheduling.Topology{Key: key, Of: make([]int32, len(c.nodes))}
	domains := map[string]int32{}
	for i, n := range c.nodes {
		value, ok := n.Labels[key]
		if !ok {
			t.Of[i] = scheduling.NoDomain
			continue
		}
		d, known := domains[value]
		if !known {
			d = int32(len(domains)) // there are fewer domains than nodes, so this does not overflow
			domains[value] = d
		}
		t.Of[i] = d
	}
	t.Domains = len(domains)
	c.topologies[key] = t
	return t
}

// sameShare reports whether two states of a pod certainly have the same requests and the same
// group. In doubtful cases it returns false, and the caller compiles the pod again.
func sameShare(a, b *v1.Pod) bool {
	return (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && maps.Equal(a.Labels, b.Labels) &&
		plain(a) && plain(b) && sameQuantities(a.Spec.Overhead, b.Spec.Overhead) &&
		slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, sameRequests) &&
		slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, sameRequests)
}

// plain reports whether the requests in the specs of a pod's containers are all that counts: no
// container is being resized, and there are no requests at pod level.
func plain(p *v1.Pod) bool {
	if p.Spec.Resources != nil || resourcehelper.IsPodResizeInfeasible(p) {
		return false
	}
	return asAsked(p.Spec.Containers, p.Status.ContainerStatuses) &&
		asAsked(p.Spec.InitContainers, p.Status.InitContainerStatuses)
}

func asAsked(containers []v1.Container, statuses []v1.ContainerStatus) bool {
	for i := range statuses {
		s := &statuses[i]
		if s.Resources == nil && s.AllocatedResources == nil {
			continue
		}
		at := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == s.Name })
		if at < 0 {
			return false
		}
		asked := containers[at].Resources.Requests
		if s.Resources != nil && !sameQuantities(s.Resources.Requests, asked) ||
			s.AllocatedResources != nil && !sameQuantities(s.AllocatedResources, asked) {
			return false
		}
	}
	return true
}

func sameRequests(a, b v1.Container) bool {
	return sameQuantities(a.Resources.Requests, b.Resources.Requests)
}

func sameQuantities(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, ok := b[name]; !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
