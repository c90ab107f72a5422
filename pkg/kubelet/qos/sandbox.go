// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox returns the sum of the resources of all of a pod's containers. A runtime that runs a pod
// in a virtual machine uses it as the machine's size.
func Sandbox(pod *v1.Pod, n Node) *runtimeapi.LinuxContainerResources {
	o := helpers.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := helpers.PodRequests(pod, o), helpers.PodLimits(pod, o)
	request, ok := requests[v1.ResourceCPU]
	if !ok {
		request = *limits.Cpu()
	}
	return n.linux(&request, limits.Cpu(), limits.Memory())
}

// Overhead returns the pod's overhead: what a runtime with virtual machines needs in addition to
// the containers.
func Overhead(pod *v1.Pod, n Node) *runtimeapi.LinuxContainerResources {
	if pod.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	return n.linux(pod.Spec.Overhead.Cpu(), pod.Spec.Overhead.Cpu(), pod.Spec.Overhead.Memory())
}

func (n Node) linux(request, limit, memory *resource.Quantity) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{CpuShares: Shares(request.MilliValue()), MemoryLimitInBytes: memory.Value()}
	if n.CFSQuota {
		r.CpuQuota, r.CpuPeriod = Quota(limit.MilliValue(), n.Period), n.Period.Microseconds()
	}
	if n.Unified && !n.SingleProcessOOMKill {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}
