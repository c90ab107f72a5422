// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
)

// Had is what a container runs with: its own resources, and those of its pod at that time.
type Had struct {
	Pod       *v1.ResourceRequirements `json:"pod,omitempty"`
	Container v1.ResourceRequirements  `json:"container"`
}

// Resize is the answer to what a pod asks for.
type Resize struct {
	// Pod is the pod with what it is given.
	Pod *v1.Pod
	// Pending is why it is not given what it asks for, or nil. With the reason Infeasible it never will be.
	Pending *Refusal
	// Granted tells that it was given something else just now.
	Granted bool
	// Behind is what containers still run with that are given something else now,
	// since that generation of the pod.
	Behind map[string]Had
	Since  int64
}

// Resize gives an admitted pod what it asks for, if the node has it.
func (m *Manager) Resize(pod *v1.Pod) Resize {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.given[pod.UID]
	if g == nil {
		return Resize{Pod: pod}
	}
	allocated, differs := m.allocated(pod)
	r := Resize{Pod: allocated}
	if differs {
		if m.cfg.Fixed != nil {
			r.Pending = m.cfg.Fixed(pod, allocated)
		}
		if r.Pending == nil {
			r.Pending = m.cfg.Check(pod, m.others(pod.UID))
		}
		if r.Granted = r.Pending == nil; r.Granted {
			shrinks := less(pod, allocated)
			g.grant(pod, allocated)
			r.Pod = pod
			m.save()
			if shrinks {
				m.freed()
			}
		}
	}
	if r.Pending != nil {
		m.pending[pod.UID] = true
	} else {
		delete(m.pending, pod.UID)
	}
	r.Behind, r.Since = maps.Clone(g.Behind), g.Since
	return r
}

// grant makes what the pod asks for what it has; its containers have to follow.
func (g *given) grant(pod, before *v1.Pod) {
	g.Since = pod.Generation
	if g.Behind == nil {
		g.Behind = map[string]Had{}
	}
	whole := !equality.Semantic.DeepEqual(pod.Spec.Resources, before.Spec.Resources)
	for _, lists := range [][2][]v1.Container{{pod.Spec.InitContainers, before.Spec.InitContainers}, {pod.Spec.Containers, before.Spec.Containers}} {
		for i := range lists[1] {
			old, now := &lists[1][i], &lists[0][i]
			if _, already := g.Behind[old.Name]; !already && (whole || !equality.Semantic.DeepEqual(old.Resources, now.Resources)) {
				g.Behind[old.Name] = Had{before.Spec.Resources.DeepCopy(), *old.Resources.DeepCopy()}
			}
		}
	}
	g.set(pod)
}

// Reached notes that a container runs with what it was given, or that it does not run.
func (m *Manager) Reached(uid types.UID, container string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.given[uid]
	if g == nil {
		return
	}
	if _, ok := g.Behind[container]; ok {
		delete(g.Behind, container)
		m.save()
	}
}

// less tells whether the pod asks for less of something than it had.
func less(pod, before *v1.Pod) bool {
	now := resource.PodRequests(pod, resource.PodResourcesOptions{})
	for name, q := range resource.PodRequests(before, resource.PodResourcesOptions{}) {
		if now[name] = now[name].DeepCopy(); q.Cmp(now[name]) > 0 {
			return true
		}
	}
	return false
}

// freed has those looked at that wait for resources. The caller holds the lock.
func (m *Manager) freed() {
	for uid := range m.pending {
		m.cfg.Freed(uid)
	}
}
