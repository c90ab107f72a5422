// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Swap tells how containers may use the machine's swap.
type Swap struct {
	// Controller reports whether the kernel can limit it; without, nothing is written.
	Controller bool
	// Limited lets Burstable pods have a share of it; otherwise nobody has any.
	Limited bool
	// Capacity is how much swap the machine has.
	Capacity int64
}

// Allows reports whether a container may use swap. Only Burstable pods that are not critical
// have any, and of them containers that ask for memory and not for as much as they may have.
func (s Swap) Allows(pod *v1.Pod, c *v1.Container) bool {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	critical := pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical-1000
	return s.Controller && s.Limited && !critical && Class(pod) == v1.PodQOSBurstable && !request.IsZero() && request.Cmp(*limit) != 0
}

// container writes the container's limit of swap: one that may use it gets the share of the swap
// that it asks of the memory.
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

// Protection is the MemoryQoS feature of Kubernetes.
type Protection struct {
	// Throttling is how much of what lies between a container's request and its limit it may
	// have before it is slowed down; 0: the feature is off.
	Throttling float64
	// Reserve has requests of Guaranteed pods kept by the kernel, and those of Burstable pods kept if it can.
	Reserve bool
	// Allocatable is the limit of containers without one: the memory of the node that pods may have.
	Allocatable int64
}

// Reserved is what of a request is kept in any case, and what if that can be.
func (p Protection) Reserved(class v1.PodQOSClass, request int64) (least, low int64) {
	switch {
	case p.Throttling == 0 || !p.Reserve:
		return 0, 0
	case class == v1.PodQOSGuaranteed:
		return request, 0
	case class == v1.PodQOSBurstable:
		return 0, request
	}
	return 0, 0
}

func (p Protection) container(unified map[string]string, class v1.PodQOSClass, request, limit int64) {
	if p.Throttling == 0 {
		return
	}
	least, low := p.Reserved(class, request)
	if least > 0 {
		unified["memory.min"] = strconv.FormatInt(least, 10)
	}
	if low > 0 {
		unified["memory.low"] = strconv.FormatInt(low, 10)
	}
	if limit == 0 {
		limit = p.Allocatable
	}
	if class == v1.PodQOSGuaranteed || request == limit {
		return
	}
	page := int64(os.Getpagesize())
	if high := int64(float64(request)+p.Throttling*float64(limit-request)) / page * page; high > request {
		unified["memory.high"] = strconv.FormatInt(high, 10)
	}
}

// hugePages are the limits of each size that the machine has; what is not asked for is none.
func (n Node) hugePages(limits v1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for _, size := range n.HugePages {
		q := limits[HugePages(size)]
		out[PageName(size)] = q.Value()
	}
	return out
}
