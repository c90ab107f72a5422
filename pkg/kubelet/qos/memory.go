// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"
)

// Swap determines how containers may use the machine's swap.
type Swap struct {
	// Controller reports whether cgroups can limit swap. If they cannot, no limit is written.
	Controller bool
	// Limited allows containers of Burstable pods to use a share of the swap. Otherwise no
	// container may use swap.
	Limited bool
	// Capacity is the size of the machine's swap in bytes.
	Capacity int64
}

// Allows reports whether a container may use swap. The pod must be Burstable and not critical, and
// the container must request memory, but not as much as its limit.
func (s Swap) Allows(pod *v1.Pod, c *v1.Container) bool {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	critical := pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical-1000
	return s.Controller && s.Limited && !critical && Class(pod) == v1.PodQOSBurstable && !request.IsZero() &&
		request.Cmp(*limit) != 0
}

// container adds the container's swap limit to its cgroup settings. Its share of the machine's swap
// is its memory request divided by the node's memory.
func (s Swap) container(unified map[string]string, pod *v1.Pod, c *v1.Container, memory int64) {
	if !s.Controller {
		return
	}
	share := int64(0)
	if s.Allows(pod, c) && memory > 0 {
		share = int64(float64(c.Resources.Requests.Memory().Value()) / float64(memory) * float64(s.Capacity))
	}
	unified["memory.swap.max"] = strconv.FormatInt(share, 10)
}

// Protection holds the settings of Kubernetes' MemoryQoS feature.
type Protection struct {
	// Throttling is a fraction from 0 to 1. The kernel slows a container down when its memory use
	// exceeds its request by this fraction of the difference between limit and request. With 0, the
	// kernel never does so.
	Throttling float64
	// Reserve makes the kernel protect memory up to the requests of pods: always for Guaranteed
	// pods, and if possible for Burstable pods.
	Reserve bool
	// Allocatable is the node's allocatable memory in bytes. It takes the place of the limit for
	// containers without a memory limit.
	Allocatable int64
}

// Reserved returns how many bytes the kernel must always protect (memory.min), and how many it must
// protect if possible (memory.low).
func (p Protection) Reserved(class v1.PodQOSClass, request int64) (least, low int64) {
	switch {
	case !p.Reserve:
		return 0, 0
	case class == v1.PodQOSGuaranteed:
		return request, 0
	case class == v1.PodQOSBurstable:
		return 0, request
	}
	return 0, 0
}

// container adds the memory protection and the memory.high of a container to its cgroup settings. limit is the
// container's own limit.
func (p Protection) container(unified map[string]string, pod *v1.Pod, request, limit int64) {
	least, low := p.Reserved(Class(pod), request)
	if least > 0 {
		unified["memory.min"] = strconv.FormatInt(least, 10)
	}
	if low > 0 {
		unified["memory.low"] = strconv.FormatInt(low, 10)
	}
	if limit == 0 {
		if pod.Spec.Resources != nil && positive(pod.Spec.Resources.Limits, v1.ResourceMemory) {
			return // the memory.high of the pod's cgroup applies to the container
		}
		limit = p.Allocatable
	}
	if high := p.high(request, limit); high > 0 {
		unified["memory.high"] = strconv.FormatInt(high, 10)
	}
}

// high returns the memory use in bytes above which the kernel slows down the processes of a cgroup (memory.high).
// It returns 0 if there is no such limit.
func (p Protection) high(request, limit int64) int64 {
	if p.Throttling == 0 || request == limit || limit == 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	if high := int64(float64(request)+p.Throttling*float64(limit-request)) / page * page; high > request {
		return high
	}
	return 0
}

// pod returns the memory.high of the cgroup of a pod, in the form of PodLimits.High. Only pods with pod-level
// resources have one, and only if the memory of the whole pod is limited.
func (p Protection) pod(pod *v1.Pod, request, limit int64, limited bool) int64 {
	switch {
	case p.Throttling == 0 || !helpers.IsPodLevelResourcesSet(pod):
		return 0
	case !limited:
		return unlimited
	}
	return cmp.Or(p.high(request, limit), unlimited)
}

// hugePages returns a limit in bytes for each page size of the machine. The limit is 0 for a size
// that limits does not contain.
func (n Node) hugePages(limits v1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for _, size := range n.HugePages {
		q := limits[HugePages(size)]
		out[PageName(size)] = q.Value()
	}
	return out
}
