// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// Hints implements numa.Provider. It returns the sets of NUMA nodes that have enough CPUs for the
// container.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) numa.Hints {
	needed := m.asks(pod, c)
	if needed == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if has, ok := m.given[pod.UID][c.Name]; ok {
		return m.repeatHints(has, needed)
	}
	return hintsOf(m.hints(m.available(), m.reusable(pod), needed))
}

// PodHints implements numa.Provider. It returns the sets of NUMA nodes that have enough CPUs for
// all containers of the pod.
func (m *Manager) PodHints(pod *v1.Pod) numa.Hints {
	needed := m.asksInAll(pod)
	if needed == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	has := cpuset.New()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			set, ok := m.given[pod.UID][list[i].Name]
			if ok && set.Size() != m.asks(pod, &list[i]) {
				return numa.Hints{string(v1.ResourceCPU): {}}
			}
			has = has.Union(set)
		}
	}
	if has.Size() == needed {
		return m.repeatHints(has, needed)
	}
	return hintsOf(m.hints(m.available(), m.reusable(pod).Union(has), needed))
}

// asksInAll returns the largest number of exclusive CPUs that the pod needs at the same time.
func (m *Manager) asksInAll(pod *v1.Pod) int {
	most, lasting := 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if n := m.asks(pod, c); sidecar(c) {
			lasting += n
		} else {
			most = max(most, lasting+n)
		}
	}
	for i := range pod.Spec.Containers {
		lasting += m.asks(pod, &pod.Spec.Containers[i])
	}
	return max(most, lasting)
}

func hintsOf(list []numa.Hint) numa.Hints { return numa.Hints{string(v1.ResourceCPU): list} }

// repeatHints returns the hints for CPUs that are already assigned. If their number differs from
// the requested number, it returns no set of nodes.
func (m *Manager) repeatHints(has cpuset.CPUSet, needed int) numa.Hints {
	if has.Size() != needed {
		return numa.Hints{string(v1.ResourceCPU): {}}
	}
	return hintsOf(m.hints(has, cpuset.New(), needed))
}

// hints returns the sets of NUMA nodes whose CPUs suffice, including all the reusable CPUs. The
// smallest sets are marked as preferred.
func (m *Manager) hints(free, reusable cpuset.CPUSet, needed int) []numa.Hint {
	fewest := len(m.cfg.Layout.Nodes)
	out := []numa.Hint{}
	for _, nodes := range numa.Subsets(m.cfg.Layout.NodeIDs()) {
		of := m.cfg.Layout.CPUsOf(nodes)
		if of.Size() >= needed {
			fewest = min(fewest, nodes.Count())
		}
		if reusable.IsSubsetOf(of) && reusable.Size()+free.Intersection(of).Size() >= needed {
			out = append(out, numa.Hint{Nodes: nodes})
		}
	}
	out = numa.MarkPreferred(out, fewest)
	if !m.cfg.Options.BySocket {
		return out
	}
	perSocket := len(m.cfg.Layout.Nodes) / m.cfg.Layout.Count(socketOf)
	for i := range out {
		if perSocket > 0 && len(m.sockets(out[i].Nodes)) == ceil(fewest, perSocket) {
			out[i].Preferred = true
		}
	}
	return out
}
