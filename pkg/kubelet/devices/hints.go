// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/kubelet/dra"
	"keelson.dev/keelson/pkg/kubelet/numa"
)

var _ numa.Provider = (*Manager)(nil)

// Hints implements numa.Provider. It returns the sets of NUMA nodes that have enough devices for
// the container, for each resource.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) numa.Hints {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := numa.Hints{}
	for key, count := range c.Resources.Limits {
		name := string(key)
		if o := m.resources[name]; o != nil && !dra.Serves(pod, c.Name, key) {
			var has []string
			if g := m.given[pod.UID][c.Name][name]; g != nil {
				has = g.Devices
			}
			out[name] = m.hints(o, has, m.free(name, o.healthy()), m.reusable(pod, name), int(count.Value()))
		}
	}
	return out
}

// PodHints implements numa.Provider. It returns the sets of NUMA nodes that have enough devices for
// all containers of the pod, for each resource.
func (m *Manager) PodHints(pod *v1.Pod) numa.Hints {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := numa.Hints{}
	for key, count := range helpers.PodLimits(pod, helpers.PodResourcesOptions{ExcludeOverhead: true}) {
		name := string(key)
		o := m.resources[name]
		if o == nil || slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers),
			func(c v1.Container) bool { return dra.Serves(pod, c.Name, key) }) {
			continue
		}
		has := map[string]bool{}
		for _, grants := range m.given[pod.UID] {
			if g := grants[name]; g != nil {
				for _, id := range g.Devices {
					has[id] = true
				}
			}
		}
		out[name] = m.hints(o, slices.Sorted(maps.Keys(has)), m.free(name, o.healthy()), nil, int(count.Value()))
	}
	return out
}

// hints returns the sets of NUMA nodes that have enough devices of a resource. If devices are
// already assigned, only these count; otherwise the free and reusable devices count. It returns nil
// if no device has a NUMA node.
func (m *Manager) hints(o *offer, has, free, reusable []string, count int) []numa.Hint {
	near := numa.Mask(0)
	for _, d := range o.devices {
		near |= d.nodes
	}
	if near == 0 {
		return nil
	}
	switch {
	case len(has) > 0 && len(has) != count:
		return []numa.Hint{}
	case len(has) > 0:
		free, reusable = has, nil
	case len(free)+len(reusable) < count:
		return []numa.Hint{}
	}
	nodes := (near & numa.MaskOf(m.cfg.Nodes...)).Nodes() // adding further nodes to a set adds no devices
	if len(nodes) == 0 {
		nodes = m.cfg.Nodes
	}
	fewest, out := len(nodes), []numa.Hint{}
	for _, set := range numa.Subsets(nodes) {
		total, matching, missed := 0, 0, false
		for _, d := range o.devices {
			if d.nodes&set != 0 {
				total++
			}
		}
		if total >= count {
			fewest = min(fewest, set.Count())
		}
		for _, id := range reusable {
			if d := o.devices[id]; d.nodes&set != 0 {
				matching++
			} else if d.nodes != 0 {
				missed = true
			}
		}
		for _, id := range free {
			if o.devices[id].nodes&set != 0 {
				matching++
			}
		}
		if !missed && matching >= count {
			out = append(out, numa.Hint{Nodes: set})
		}
	}
	return numa.MarkPreferred(out, fewest)
}
