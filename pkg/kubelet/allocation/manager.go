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

// Config holds a Manager's dependencies.
type Config struct {
	Log *slog.Logger
	// Dir is the directory of the file that stores the granted resources.
	Dir string
	// Pods returns the node's pods with their newest statuses.
	Pods func() []*v1.Pod
	// Listed reports whether Pods returns all the node's pods. Until it does, no resize is granted or
	// refused. It may be nil, which means always.
	Listed func() bool
	// Check returns why the node cannot run the pod together with the other given pods, or nil if it
	// can.
	Check func(pod *v1.Pod, others []*v1.Pod) *Refusal
	// Fixed returns why a running pod, which has the resources of its second argument, can never be
	// resized to those of the first, or nil if it can. The function Fixed may be nil.
	Fixed func(pod, has *v1.Pod) *Refusal
	// Freed is called for each pod whose waiting resize was granted or should be tried again. It
	// must not block.
	Freed func(uid types.UID)
	// Infeasible is called once for each version of a pod that requests a resize which can never be
	// granted. Accepted is called when a deferred resize is granted; trigger says what led to that.
	// Both functions may be nil.
	Infeasible func(detail string)
	Accepted   func(trigger string)
}

// Manager admits pods and grants resources to them. It is safe for concurrent use.
type Manager struct {
	cfg Config

	mu      sync.Mutex
	given   map[types.UID]*given // granted resources by pod; guarded by mu, as is the file
	pending []types.UID          // pods whose resize waits for resources, oldest first; guarded by mu
	// granted holds the pods whose resize was granted since Resize was last called for them.
	// refused holds the last refused resize of each pod. Both are guarded by mu.
	granted map[types.UID]bool
	refused map[types.UID]refused
}

// refused describes a refused resize of a pod: the pod's generation, and whether it can never be
// granted.
type refused struct {
	generation int64
	infeasible bool
}

// given holds the resources that were granted to an admitted pod.
type given struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers,omitempty"`
	// Behind holds, by container name, the resources of containers that do not run with the granted
	// resources yet. Since is the generation of the pod that requested the granted resources.
	Behind map[string]Had `json:"behind,omitempty"`
	Since  int64          `json:"since,omitempty"`
}

// NewManager returns a Manager that starts with the granted resources stored in the file.
func NewManager(cfg Config) *Manager {
	m := &Manager{cfg: cfg, granted: map[types.UID]bool{}, refused: map[types.UID]refused{}}
	m.load()
	return m
}

// Admit returns why the node cannot run the pod, or nil if it can. A pod that was admitted before
// is always admitted again.
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

// Forget drops the granted resources of a pod whose containers have all ended, and grants waiting
// resizes.
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
			m.cfg.Freed(other) // the pod may have changed since it was refused, so try its resize again
		}
	}
}

// Pods returns the UIDs of the pods that have granted resources.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.given))
}

// Allocated returns the pod with the granted resources in place of the requested ones, and whether
// the granted resources differ from the requested ones.
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

// same reports whether the pod requests exactly the granted resources.
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

func (m *Manager) listed() bool { return m.cfg.Listed == nil || m.cfg.Listed() }

// admitted reports whether this or an earlier kubelet process has admitted the pod. The caller
// holds the lock.
func (m *Manager) admitted(pod *v1.Pod) bool {
	_, ok := m.given[pod.UID]
	return ok || started(pod)
}

// started reports whether any container of the pod was created on this node. If so, an earlier
// kubelet process has admitted the pod.
func started(pod *v1.Pod) bool {
	ran := func(c v1.ContainerStatus) bool { return c.ContainerID != "" }
	return slices.ContainsFunc(pod.Status.ContainerStatuses, ran) ||
		slices.ContainsFunc(pod.Status.InitContainerStatuses, ran)
}

// others returns the admitted pods that have not ended, except the pod uid, with their granted
// resources. The caller holds the lock.
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

// give grants the pod the resources that it requests. The caller holds the lock.
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
