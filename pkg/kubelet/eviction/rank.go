// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/quantity"
)

const (
	// systemCritical is the lowest priority of system-critical pods.
	systemCritical = 2_000_000_000
	mirror         = "kubernetes.io/config.mirror"
	source         = "kubernetes.io/config.source"
	fromAPI        = "api"
)

// IsCritical reports whether a pod is critical and therefore never evicted. Mirror pods, static
// pods and pods with a system-critical priority are critical.
func IsCritical(pod *v1.Pod) bool {
	if _, ok := pod.Annotations[mirror]; ok {
		return true
	}
	if from, ok := pod.Annotations[source]; ok && from != fromAPI {
		return true
	}
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// Candidate is a pod that can be evicted, with its resource usage. Usage is nil if it is unknown.
type Candidate struct {
	Pod   *v1.Pod
	Usage *statsapi.PodStats
}

// rank sorts pods in the order in which they are evicted when the node lacks the resource r.
func rank(list []Candidate, r v1.ResourceName) {
	slices.SortStableFunc(list, func(a, b Candidate) int {
		ua, ra, oka := a.consumes(r)
		ub, rb, okb := b.consumes(r)
		if r != pids && (!oka || !okb) {
			// A pod whose usage is unknown counts as exceeding its request.
			return cmp.Or(boolOrder(oka)-boolOrder(okb), cmp.Compare(priority(a.Pod), priority(b.Pod)))
		}
		over := 0
		if r == v1.ResourceMemory || r == v1.ResourceEphemeralStorage {
			over = boolOrder(ub > rb) - boolOrder(ua > ra)
		}
		return cmp.Or(over, cmp.Compare(priority(a.Pod), priority(b.Pod)), cmp.Compare(ub-rb, ua-ra))
	})
}

// consumes returns how much of a resource the pod uses and requests. The result known is false if
// the usage is unknown.
func (c *Candidate) consumes(r v1.ResourceName) (used, requested int64, known bool) {
	if c.Usage == nil {
		return 0, 0, false
	}
	switch r {
	case v1.ResourceMemory:
		used, known = memoryOf(c.Usage)
	case v1.ResourceEphemeralStorage:
		if e := c.Usage.EphemeralStorage; e != nil {
			used, known = value(e.UsedBytes)
		}
	case inodes:
		if e := c.Usage.EphemeralStorage; e != nil {
			used, known = value(e.InodesUsed)
		}
		return used, 0, known
	case pids:
		if p := c.Usage.ProcessStats; p != nil {
			used, known = value(p.ProcessCount)
		}
		return used, 0, known
	}
	q := resourcehelper.PodRequests(c.Pod, resourcehelper.PodResourcesOptions{})[r]
	return used, quantity.Value(q), known
}

func memoryOf(s *statsapi.PodStats) (int64, bool) {
	if s.Memory == nil {
		return 0, false
	}
	return value(s.Memory.WorkingSetBytes)
}

func value(p *uint64) (int64, bool) {
	if p == nil {
		return 0, false
	}
	return int64(*p), true
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
