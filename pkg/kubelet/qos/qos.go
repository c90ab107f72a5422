// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qos computes the kernel's settings for a pod's resource requests and limits with
// Kubernetes' formulas: CPU shares and quota, memory limits and OOM scores. It also computes the QoS
// class. Its results depend only on its inputs.
package qos

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // the kernel's minimum, in microseconds

	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000

	nodeCritical = 2000001000 // the priority of system-node-critical
)

// Shares converts thousandths of a CPU into the CPU shares of cgroup v1.
func Shares(milli int64) int64 {
	return min(max(milli*1024/1000, minShares), maxShares)
}

// Quota converts thousandths of a CPU into the CPU time per period in microseconds. 0 means no
// limit.
func Quota(milli int64, period time.Duration) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period.Microseconds()/1000, minQuota)
}

// Class returns the QoS class in the pod's status, or computes it if the status has none.
func Class(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return Compute(pod)
}

// Compute computes the QoS class from the pod's resources.
func Compute(pod *v1.Pod) v1.PodQOSClass {
	var all []v1.ResourceRequirements
	if helpers.IsPodLevelResourcesSet(pod) {
		all = append(all, *pod.Spec.Resources)
	} else {
		for _, c := range pod.Spec.Containers {
			all = append(all, c.Resources)
		}
		for _, c := range pod.Spec.InitContainers {
			all = append(all, c.Resources)
		}
	}
	some, guaranteed := false, true
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	for _, r := range all {
		some = add(requests, r.Requests) || some
		some = add(limits, r.Limits) || some
		guaranteed = guaranteed && positive(r.Limits, v1.ResourceCPU) && positive(r.Limits, v1.ResourceMemory)
	}
	if !some {
		return v1.PodQOSBestEffort
	}
	for name, q := range requests {
		if limit, ok := limits[name]; !ok || limit.Cmp(q) != 0 {
			guaranteed = false
		}
	}
	if guaranteed && len(requests) == len(limits) {
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

func positive(l v1.ResourceList, name v1.ResourceName) bool {
	q, ok := l[name]
	return ok && q.Sign() > 0
}

// add adds the CPU and memory of l to sum. It reports whether l contains any of them.
func add(sum, l v1.ResourceList) bool {
	some := false
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !positive(l, name) {
			continue
		}
		some = true
		total := sum[name]
		total.Add(l[name])
		sum[name] = total
	}
	return some
}

// OOMScore returns the oom_score_adj of a container. memory is the node's memory in bytes.
func OOMScore(pod *v1.Pod, c *v1.Container, memory int64) int64 {
	if p := pod.Spec.Priority; p != nil && *p >= nodeCritical {
		return guaranteedOOMScore
	}
	switch Class(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case v1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	if memory <= 0 {
		return bestEffortOOMScore - 1
	}
	share := unassigned(pod)
	score := 1000 - 1000*(c.Resources.Requests.Memory().Value()+share)/memory
	if sidecar(pod, c.Name) {
		// A sidecar gets a score that is not higher than those of the main containers, so that the
		// kernel does not kill it before them.
		score = min(score, 1000-1000*(leastMemory(pod)+share)/memory)
	}
	return min(max(score, 1000+guaranteedOOMScore), bestEffortOOMScore-1)
}

// unassigned returns each container's equal share of the memory that the pod requests in addition
// to the requests of its containers.
func unassigned(pod *v1.Pod) int64 {
	if !helpers.IsPodLevelRequestsSet(pod) {
		return 0
	}
	total := helpers.PodRequests(pod, helpers.PodResourcesOptions{})
	containers := helpers.AggregateContainerRequests(pod, helpers.PodResourcesOptions{})
	n := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		if sidecar(pod, pod.Spec.InitContainers[i].Name) {
			n++
		}
	}
	rest := total.Memory().Value() - containers.Memory().Value()
	if rest <= 0 || n == 0 {
		return 0
	}
	return rest / n
}

func sidecar(pod *v1.Pod, name string) bool {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		}
	}
	return false
}

func leastMemory(pod *v1.Pod) int64 {
	least := int64(-1)
	for _, c := range pod.Spec.Containers {
		if m := c.Resources.Requests.Memory().Value(); least < 0 || m < least {
			least = m
		}
	}
	return max(least, 0)
}

// Node contains the properties and settings of the node on which the formulas depend.
type Node struct {
	// Memory is the node's memory in bytes.
	Memory int64
	// CFSQuota reports whether CPU limits are enforced. Period is the period of the CPU quota.
	CFSQuota bool
	Period   time.Duration
	// Unified reports whether the node uses cgroup v2.
	Unified bool
	// HugePages are the sizes of huge pages that the machine has.
	HugePages []int64
	// Swap determines how containers may use swap, and Protection how their memory is protected.
	// They have an effect only with cgroup v2.
	Swap       Swap
	Protection Protection
	// SingleProcessOOMKill makes the kernel kill only one process of a container that is out of
	// memory, and not all its processes.
	SingleProcessOOMKill bool
	// MinOOMScore is the lowest oom_score_adj that the kubelet may set. With CAP_SYS_RESOURCE it is
	// -1000.
	MinOOMScore int64
}

// Container returns the resources of a container in the form of the CRI.
func Container(pod *v1.Pod, c *v1.Container, n Node) *runtimeapi.LinuxContainerResources {
	limits := effectiveLimits(pod, c)
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = *limits.Cpu()
	}
	r := n.linux(&request, limits.Cpu(), limits.Memory())
	r.OomScoreAdj, r.HugepageLimits = max(OOMScore(pod, c, n.Memory), n.MinOOMScore), hugepages(c.Resources.Limits)
	if !n.Unified {
		return r
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	n.Swap.container(r.Unified, pod, c, n.Memory)
	n.Protection.container(r.Unified, pod, c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value())
	return r
}

// effectiveLimits returns the container's limits. For a resource without a limit in the container,
// it returns the pod's limit.
func effectiveLimits(pod *v1.Pod, c *v1.Container) v1.ResourceList {
	l := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if positive(c.Resources.Limits, name) {
			l[name] = c.Resources.Limits[name]
		} else if pod.Spec.Resources != nil && positive(pod.Spec.Resources.Limits, name) {
			l[name] = pod.Spec.Resources.Limits[name]
		}
	}
	return l
}

func hugepages(l v1.ResourceList) []*runtimeapi.HugepageLimit {
	var out []*runtimeapi.HugepageLimit
	for name, q := range l {
		size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		page, err := resource.ParseQuantity(size)
		if err != nil {
			continue
		}
		out = append(out, &runtimeapi.HugepageLimit{PageSize: PageName(page.Value()), Limit: uint64(q.Value())})
	}
	return out
}

// HugePages returns the name of the resource that stands for huge pages of a size in bytes.
func HugePages(size int64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// PageName formats a page size in the way in which names of cgroup files contain it, such as 2MB.
func PageName(size int64) string {
	for _, u := range []struct {
		unit int64
		name string
	}{{1 << 30, "GB"}, {1 << 20, "MB"}, {1 << 10, "KB"}} {
		if size >= u.unit {
			q := resource.NewQuantity(size/u.unit, resource.DecimalSI)
			return q.String() + u.name
		}
	}
	return ""
}

// PodLimits are the limits of a pod's cgroup. The kubelet does not write a field that is nil.
type PodLimits struct {
	Shares, Quota, Period, Memory *int64
	// Pids is the maximum number of processes; it is not written if it is 0.
	Pids int64
	// HugePages are limits in bytes. The keys are page sizes as in names of cgroup files.
	HugePages map[string]int64
	// Min is how much memory the kernel never reclaims, and Low how much it reclaims only if
	// nothing else is left, both in bytes. 0 is not written.
	Min, Low int64
	// High is the memory use in bytes above which the kernel slows the pod's processes down. 0 is not written,
	// and -1 removes the limit.
	High int64
}

// unlimited is the value of PodLimits.High that removes the limit.
const unlimited = -1

// Pod returns the limits of the pod's cgroup.
func Pod(pod *v1.Pod, n Node) PodLimits {
	requests := helpers.PodRequests(pod, helpers.PodResourcesOptions{})
	cpuLimited, memoryLimited := true, true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		cpuLimited = cpuLimited && !c.Resources.Limits.Cpu().IsZero()
		memoryLimited = memoryLimited && !c.Resources.Limits.Memory().IsZero()
	}
	limits := helpers.PodLimits(pod, helpers.PodResourcesOptions{})
	if r := pod.Spec.Resources; r != nil {
		cpuLimited = cpuLimited || positive(r.Limits, v1.ResourceCPU)
		memoryLimited = memoryLimited || positive(r.Limits, v1.ResourceMemory)
	}
	shares, period := Shares(requests.Cpu().MilliValue()), n.Period.Microseconds()
	quota, memory := Quota(limits.Cpu().MilliValue(), n.Period), limits.Memory().Value()
	if !n.CFSQuota {
		quota = -1
	}
	class := Class(pod)
	if class == v1.PodQOSBestEffort {
		shares = minShares
		return PodLimits{Shares: &shares, HugePages: n.hugePages(nil)}
	}
	out := PodLimits{Shares: &shares, HugePages: n.hugePages(limits)}
	out.Min, out.Low = n.Protection.Reserved(class, requests.Memory().Value())
	if class == v1.PodQOSGuaranteed || cpuLimited {
		out.Quota, out.Period = &quota, &period
	}
	if class == v1.PodQOSGuaranteed || memoryLimited {
		out.Memory = &memory
	}
	out.High = n.Protection.pod(pod, requests.Memory().Value(), memory, memoryLimited)
	return out
}

// Larger returns the larger of the limits a and b for CPU, for memory and for High. If only one of
// them has a limit, the result is unlimited. Min and Low are those of b. The result has no limits
// of processes and huge pages.
func Larger(a, b PodLimits) PodLimits {
	larger := func(x, y *int64, none int64) *int64 {
		switch {
		case x == nil && y == nil:
			return nil
		case x == nil || y == nil || *x <= 0 || *y <= 0:
			return &none
		case *x > *y:
			return x
		}
		return y
	}
	out := PodLimits{Shares: larger(a.Shares, b.Shares, minShares), Period: a.Period, Min: b.Min, Low: b.Low}
	if out.Period == nil {
		out.Period = b.Period
	}
	out.Quota, out.Memory = larger(a.Quota, b.Quota, -1), larger(a.Memory, b.Memory, -1)
	if out.High = max(a.High, b.High); a.High == unlimited || b.High == unlimited {
		out.High = unlimited
	}
	return out
}
