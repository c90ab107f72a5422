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
	// Dir is the directory of the file with the granted resources.
	Dir string
	// Pods returns the pods of the node with their newest statuses.
	Pods func() []*v1.Pod
	// Check returns why the pod cannot run beside the others, or nil.
	Check func(pod *v1.Pod, others []*v1.Pod) *Refusal
	// Fixed returns why the resources of a pod can never be changed from those in has to those in
	// pod, or nil if they can. Fixed may be nil.
	Fixed func(pod, has *v1.Pod) *Refusal
	// Freed is called for each pod whose pending resize may be possible now. It must not block.
	Freed func(uid types.UID)
	// Infeasible is called once for each version of a pod that requests resources which it can
	// never get. Accepted is called when a deferred resize is accepted, with the reason. Both may
	// be nil.
	Infeasible func(detail string)
	Accepted   func(trigger string)
}

// Manager admits pods. It is safe for concurrent use.
type Manager struct {
	cfg Config

	mu      sync.Mutex
	given   map[types.UID]*given // by pod; guarded by mu, as is the file
	pending []types.UID          // pods whose resize waits for resources, oldest first; guarded by mu
	// Pods whose resize was granted since they last called Resize; guarded by mu.
	granted map[types.UID]bool
	refused map[types.UID]refused
}

// refused is the version of a pod whose resize was refused, guarded by mu.
type refused struct {
	generation int64
	infeasible bool
}

// given has the resources that were granted to an admitted pod.
type given struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	// Behind holds, for each container that does not run with the granted resources yet, the
	// resources that it runs with. Since is the generation of the pod that requested the granted
	// resources.
	Behind map[string]Had `json:"behind,omitempty"`
	Since  int64          `json:"since,omitempty"`
}

// NewManager returns a Manager with the granted resources from the file.
func NewManager(cfg Config) *Manager {
	m := &Manager{cfg: cfg, granted: map[types.UID]bool{}, refused: map[types.UID]refused{}}
	m.load()
	return m
}

// Admit returns why the node cannot run the pod, or nil. A pod that was admitted before is admitted
// again.
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

// Forget drops the granted resources of a pod whose containers have all ended.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropPending(uid)
	delete(m.granted, uid)
	if _, ok := m.given[uid]; ok {
		delete(m.given, uid)
		m.save()
		m.grantPending(nil, triggerRemoved)
		for _, other := range m.pending {
			m.cfg.Freed(other) // now the other pod may request less than before
		}
	}
}

// Pods returns the pods that have granted resources.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.given))
}

// Allocated returns the pod with the granted resources in place of the requested ones, and whether
// they differ.
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

// same reports whether the pod requests exactly what it was granted.
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

// admitted reports whether the pod was admitted before. The caller holds the lock.
func (m *Manager) admitted(pod *v1.Pod) bool {
	_, ok := m.given[pod.UID]
	return ok || started(pod)
}

// started reports whether a container of the pod has run on this node. If so, an earlier kubelet
// has admitted it.
func started(pod *v1.Pod) bool {
	ran := func(c v1.ContainerStatus) bool { return c.ContainerID != "" }
	return slices.ContainsFunc(pod.Status.ContainerStatuses, ran) ||
		slices.ContainsFunc(pod.Status.InitContainerStatuses, ran)
}

// others returns the admitted pods that have not ended, with their granted resources. The caller
// holds the lock.
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

// give grants the pod what it requests. The caller holds the lock.
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
