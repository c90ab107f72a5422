// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// Hints implements numa.Provider.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) numa.Hints {
	want := m.asks(pod, c)
	if want == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.given[string(pod.UID)][c.Name]; has != nil {
		return repeatHints(has, want)
	}
	return m.hintsFor(pod, want)
}

// PodHints implements numa.Provider.
func (m *Manager) PodHints(pod *v1.Pod) numa.Hints {
	if !m.managesPod(pod) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if has := m.given[string(pod.UID)][list[i].Name]; has != nil {
				return repeatHints(has, m.asks(pod, &list[i]))
			}
		}
	}
	return m.hintsFor(pod, m.asksInAll(pod))
}

// asksInAll returns, by resource, the largest amount that the pod's containers request at the same
// time. Init containers run before main containers, and sidecars run together with later
// containers.
func (m *Manager) asksInAll(pod *v1.Pod) map[v1.ResourceName]uint64 {
	most, lasting := map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		for name, size := range m.asks(pod, c) {
			if sidecar(c) {
				lasting[name] += size
			} else {
				most[name] = max(most[name], lasting[name]+size)
			}
		}
	}
	for i := range pod.Spec.Containers {
		for name, size := range m.asks(pod, &pod.Spec.Containers[i]) {
			lasting[name] += size
		}
	}
	for name, size := range lasting {
		most[name] = max(most[name], size)
	}
	return most
}

// repeatHints returns the hints for a container that already has memory: the nodes of that memory.
// If the amount differs from the request, the hints contain no nodes, so that the pod is rejected.
func repeatHints(has []Block, want map[v1.ResourceName]uint64) numa.Hints {
	out := numa.Hints{}
	for name := range want {
		out[string(name)] = []numa.Hint{}
	}
	if len(has) != len(want) {
		return out
	}
	for _, b := range has {
		if want[b.Type] == b.Size {
			out[string(b.Type)] = []numa.Hint{{Nodes: numa.MaskOf(b.NUMAAffinity...), Preferred: true}}
		}
	}
	return out
}

// hintsFor returns the same list of hints for each requested resource. The caller holds m.mu.
func (m *Manager) hintsFor(pod *v1.Pod, want map[v1.ResourceName]uint64) numa.Hints {
	list := m.hints(pod, want)
	if list == nil {
		list = []numa.Hint{}
	}
	out := numa.Hints{}
	for name := range want {
		out[string(name)] = list
	}
	return out
}

// hints returns the sets of nodes that have enough free memory of every kind in want, and that may
// be used as a set. The caller holds m.mu.
func (m *Manager) hints(pod *v1.Pod, want map[v1.ResourceName]uint64) []numa.Hint {
	var out []numa.Hint
	fewest := len(m.cfg.Layout.Nodes)
	for _, nodes := range numa.Subsets(m.cfg.Layout.NodeIDs()) {
		ever, now := true, true
		for name, size := range want {
			ever = ever && m.nodes.allocatable(nodes, name) >= size
			now = now && m.nodes.free(nodes, name)+m.leaves(pod, nodes, name) >= size
		}
		if !ever {
			continue
		}
		fewest = min(fewest, nodes.Count())
		alone := nodes.Count() == 1
		if !now || alone && m.nodes.grouped(nodes.Nodes()[0]) || m.nodes.apart(nodes) {
			continue
		}
		out = append(out, numa.Hint{Nodes: nodes})
	}
	return numa.MarkPreferred(out, fewest)
}
