// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Config is what a Manager needs.
type Config struct {
	Log *slog.Logger
	// Dir is where the file with what pods were given is kept.
	Dir string
	// Pods are the pods of the node with their newest statuses.
	Pods func() []*v1.Pod
	// Check returns why the pod cannot run beside the others, or nil.
	Check func(pod *v1.Pod, others []*v1.Pod) *Refusal
	// Fixed returns why a pod that has something cannot have something else, or nil; it may be nil itself.
	Fixed func(pod, has *v1.Pod) *Refusal
	// Freed is told of pods that may now get what they did not before. It must not block.
	Freed func(uid types.UID)
	// Infeasible is told once of each version of a pod that asks for what it never can have,
	// Accepted what had a resize accepted that was deferred before; both may be nil.
	Infeasible func(detail string)
	Accepted   func(trigger string)
}

// Manager admits pods. It is safe for concurrent use.
type Manager struct {
	cfg Config

	mu      sync.Mutex
	given   map[types.UID]*given // guarded by mu, as the file is
	pending []types.UID          // pods that ask for more than there is, in the order in which they did; guarded by mu
	granted map[types.UID]bool   // pods that were given it meanwhile, and were not told; guarded by mu
	refused map[types.UID]refused
}

// refused is the version of a pod that was refused what it asks for, guarded by mu.
type refused struct {
	generation int64
	infeasible bool
}

// given is what an admitted pod may use.
type given struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	// Behind is what containers were started or last changed with, where that is
	// not what they are given now; Since is the generation that asked for that.
	Behind map[string]Had `json:"behind,omitempty"`
	Since  int64          `json:"since,omitempty"`
}

// NewManager makes a Manager with what the file remembers.
func NewManager(cfg Config) *Manager {
	m := &Manager{cfg: cfg, granted: map[types.UID]bool{}, refused: map[types.UID]refused{}}
	m.load()
	return m
}

// Admit returns why the node cannot take the pod, or nil. A pod that was taken before is taken again.
func (m *Manager) Admit(pod *v1.Pod) *Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.admitted(pod) {
		if r := m.cfg.Check(pod, m.others(pod.UID)); r != nil {
			return r
		}
	}
	if _, known := m.given[pod.UID]; !known {
		m.give(pod)
	}
	return nil
}

// Forget drops what is kept of a pod of which nothing runs any more.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settled(uid)
	delete(m.granted, uid)
	if _, ok := m.given[uid]; ok {
		delete(m.given, uid)
		m.save()
		m.settle(nil, triggerRemoved)
		for _, other := range m.pending {
			m.cfg.Freed(other) // it may ask for less by now
		}
	}
}

// Pods are the pods that were given something.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.given))
}

// Allocated returns the pod with the resources that it was given in place of
// those that it asks for, and whether they differ.
func (m *Manager) Allocated(pod *v1.Pod) (*v1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocated(pod)
}

func (m *Manager) allocated(pod *v1.Pod) (*v1.Pod, bool) {
	g := m.given[pod.UID]
	if g == nil || g.same(pod) {
		return pod, false
	}
	out := pod.DeepCopy()
	if g.Pod != nil {
		out.Spec.Resources = g.Pod.DeepCopy()
	}
	for _, list := range [][]v1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			if r, ok := g.Containers[list[i].Name]; ok {
				list[i].Resources = *r.DeepCopy()
			}
		}
	}
	return out, true
}

// same reports whether the pod asks for what it has.
func (g *given) same(pod *v1.Pod) bool {
	if g.Pod != nil && !equality.Semantic.DeepEqual(pod.Spec.Resources, g.Pod) {
		return false
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if r, ok := g.Containers[list[i].Name]; ok && !equality.Semantic.DeepEqual(list[i].Resources, r) {
				return false
			}
		}
	}
	return true
}

// admitted reports whether the pod has its place on the node already. The caller holds the lock.
func (m *Manager) admitted(pod *v1.Pod) bool {
	_, ok := m.given[pod.UID]
	return ok || started(pod)
}

// started reports whether something of the pod has run here: then it was admitted by a kubelet that is gone.
func started(pod *v1.Pod) bool {
	ran := func(c v1.ContainerStatus) bool { return c.ContainerID != "" }
	return slices.ContainsFunc(pod.Status.ContainerStatuses, ran) || slices.ContainsFunc(pod.Status.InitContainerStatuses, ran)
}

// others are the admitted pods that have not ended, with what they were given. The caller holds the lock.
func (m *Manager) others(uid types.UID) []*v1.Pod {
	var out []*v1.Pod
	for _, pod := range m.cfg.Pods() {
		if pod.UID == uid || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded || !m.admitted(pod) {
			continue
		}
		pod, _ = m.allocated(pod)
		out = append(out, pod)
	}
	return out
}

// give notes what the pod asks for as what it has. The caller holds the lock.
func (m *Manager) give(pod *v1.Pod) {
	g := &given{Containers: map[string]v1.ResourceRequirements{}}
	g.set(pod)
	m.given[pod.UID] = g
	m.save()
}

func (g *given) set(pod *v1.Pod) {
	g.Pod = pod.Spec.Resources.DeepCopy()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			g.Containers[list[i].Name] = *list[i].Resources.DeepCopy()
		}
	}
}
