// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Had holds the resources with which a container runs until its resize is done: the container's
// resources and the pod-level resources of its pod, both from before the resize was granted.
type Had struct {
	Pod       *v1.ResourceRequirements `json:"pod,omitempty"`
	Container v1.ResourceRequirements  `json:"container"`
}

// Resize is the result of Manager.Resize.
type Resize struct {
	// Pod is the pod with its granted resources.
	Pod *v1.Pod
	// Pending is the reason why the request was not granted, or nil if it was. If its Reason is
	// Infeasible, the request can never be granted.
	Pending *Refusal
	// Undecided reports whether the request was neither granted nor refused, because not all pods of
	// the node are known yet. The caller must call Resize again.
	Undecided bool
	// Granted reports whether the pod was granted different resources since Resize was last called
	// for it.
	Granted bool
	// Behind holds, by container name, the resources of containers that do not run with the granted
	// resources yet. Since is the generation of the pod that requested the granted resources.
	Behind map[string]Had
	Since  int64
}

// Resize grants an admitted pod the resources that it requests, if the node has them and no pod of
// higher rank is waiting for them.
func (m *Manager) Resize(pod *v1.Pod) Resize {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.given[pod.UID]
	if g == nil {
		return Resize{Pod: pod}
	}
	r := Resize{Pod: pod}
	if _, differs := m.allocated(pod); differs {
		if !slices.Contains(m.pending, pod.UID) {
			m.pending = append(m.pending, pod.UID)
		}
		r.Undecided = !m.listed()
		r.Pending = m.grantPending(pod, triggerResized)
		r.Pod, _ = m.allocated(pod)
	} else {
		m.dropPending(pod.UID)
	}
	r.Granted = m.granted[pod.UID]
	delete(m.granted, pod.UID)
	r.Behind, r.Since = maps.Clone(g.Behind), g.Since
	return r
}

// grantPending grants the requests of waiting pods in this order: first pods that request no more
// of any resource than they have been granted, then other pods; within these groups, by priority,
// QoS class and waiting time. asks is a pod that is just requesting a resize, or nil; grantPending
// returns why its request is not granted, or nil. trigger is reported as the reason for granting
// deferred requests. The caller holds the lock.
func (m *Manager) grantPending(asks *v1.Pod, trigger string) *Refusal {
	if len(m.pending) == 0 || !m.listed() {
		return nil
	}
	var why *Refusal
	// If a granted request is smaller than before, it frees resources for pods that were refused in
	// this round, so another round follows.
	for again := true; again; {
		again = false
		for _, pod := range m.waiting(asks) {
			allocated, _ := m.allocated(pod)
			refusal := m.refusal(pod, allocated)
			if asks != nil && pod.UID == asks.UID {
				why = refusal
			}
			if refusal != nil {
				m.refuse(pod, refusal)
				continue
			}
			m.accept(pod, asks, trigger)
			again = again || less(pod, allocated)
			m.given[pod.UID].grant(pod, allocated)
			m.granted[pod.UID] = true
			m.dropPending(pod.UID)
			m.save()
			if asks == nil || pod.UID != asks.UID {
				m.cfg.Freed(pod.UID)
			}
		}
	}
	return why
}

// Events that lead to another attempt to grant a deferred resize, named as in Kubernetes.
const (
	triggerResized  = "pod_resized"
	triggerUpdated  = "pod_updated"
	triggerRemoved  = "pods_removed"
	triggerPeriodic = "periodic_retry"
)

// refuse records that the request of a pod was refused. The caller holds the lock.
func (m *Manager) refuse(pod *v1.Pod, why *Refusal) {
	now := refused{pod.Generation, why.Reason == v1.PodReasonInfeasible}
	if m.refused[pod.UID] == now {
		return
	}
	m.refused[pod.UID] = now
	if now.infeasible && m.cfg.Infeasible != nil {
		m.cfg.Infeasible(why.Detail)
	}
}

// accept calls Config.Accepted if the resize of a pod, which is granted now, was deferred before.
// The caller holds the lock.
func (m *Manager) accept(pod, asks *v1.Pod, trigger string) {
	before, ok := m.refused[pod.UID]
	if !ok || before.infeasible || m.cfg.Accepted == nil {
		return
	}
	if asks != nil && pod.UID == asks.UID {
		if trigger = triggerPeriodic; before.generation != pod.Generation {
			trigger = triggerUpdated
		}
	}
	m.cfg.Accepted(trigger)
}

func (m *Manager) refusal(pod, allocated *v1.Pod) *Refusal {
	if m.cfg.Fixed != nil {
		if r := m.cfg.Fixed(pod, allocated); r != nil {
			return r
		}
	}
	return m.cfg.Check(pod, m.others(pod.UID))
}

// waiting returns the pods whose requests are waiting, in the order in which they are granted. asks
// replaces the stored version of its pod. The caller holds the lock.
func (m *Manager) waiting(asks *v1.Pod) []*v1.Pod {
	pods := map[types.UID]*v1.Pod{}
	for _, pod := range m.cfg.Pods() {
		pods[pod.UID] = pod
	}
	if asks != nil {
		pods[asks.UID] = asks
	}
	var out []*v1.Pod
	for _, uid := range m.pending {
		pod := pods[uid]
		if pod == nil || m.given[uid] == nil || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
			continue
		}
		if _, differs := m.allocated(pod); differs {
			out = append(out, pod)
		}
	}
	slices.SortStableFunc(out, func(a, b *v1.Pod) int { return slices.Compare(m.rank(a), m.rank(b)) })
	return out
}

// rank returns the pod's rank as a sort key. Requests of pods with lower keys are granted first.
func (m *Manager) rank(pod *v1.Pod) []int {
	allocated, _ := m.allocated(pod)
	out := []int{0, 0, 1}
	if less(allocated, pod) {
		out[0] = 1
	}
	if p := pod.Spec.Priority; p != nil {
		out[1] = -int(*p)
	}
	if qos.Class(pod) == v1.PodQOSGuaranteed {
		out[2] = 0
	}
	return out
}

// dropPending records that a pod is no longer waiting for resources. The caller holds the lock.
func (m *Manager) dropPending(uid types.UID) {
	delete(m.refused, uid)
	m.pending = slices.DeleteFunc(m.pending, func(other types.UID) bool { return other == uid })
}

// grant grants the pod the resources that it requests. It records in Behind the containers that
// must still be changed to them.
func (g *given) grant(pod, before *v1.Pod) {
	g.Since = pod.Generation
	if g.Behind == nil {
		g.Behind = map[string]Had{}
	}
	whole := !equality.Semantic.DeepEqual(pod.Spec.Resources, before.Spec.Resources)
	for _, lists := range [][2][]v1.Container{{pod.Spec.InitContainers, before.Spec.InitContainers},
		{pod.Spec.Containers, before.Spec.Containers}} {
		for i := range lists[1] {
			old, now := &lists[1][i], &lists[0][i]
			if _, already := g.Behind[old.Name]; !already &&
				(whole || !equality.Semantic.DeepEqual(old.Resources, now.Resources)) {
				g.Behind[old.Name] = Had{before.Spec.Resources.DeepCopy(), *old.Resources.DeepCopy()}
			}
		}
	}
	g.set(pod)
}

// Reached records that a container now runs with the granted resources, or that it does not run.
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

// less reports whether a pod now requests less of at least one resource than its earlier version.
func less(pod, before *v1.Pod) bool {
	now := resource.PodRequests(pod, resource.PodResourcesOptions{})
	for name, q := range resource.PodRequests(before, resource.PodResourcesOptions{}) {
		if now[name] = now[name].DeepCopy(); q.Cmp(now[name]) > 0 {
			return true
		}
	}
	return false
}
