// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"math"

	v1 "k8s.io/api/core/v1"
)

// amounts has amounts of resources: CPU in millicores, and other resources in their base units.
type amounts map[v1.ResourceName]int64

func amountsOf(list v1.ResourceList) amounts {
	out := amounts{}
	for name, q := range list {
		out[name] = q.Value()
		if name == v1.ResourceCPU {
			out[name] = q.MilliValue()
		}
	}
	return out
}

func plus(a, b amounts) amounts {
	out := amounts{}
	for _, x := range []amounts{a, b} {
		for name, v := range x {
			out[name] += v
		}
	}
	return out
}

func largest(a, b amounts) amounts {
	out := plus(a, nil)
	for name, v := range b {
		if v > out[name] {
			out[name] = v
		}
	}
	return out
}

// requests returns the amounts that a pod requests: the larger of the sum of its containers and
// sidecars and the maximum during initialization, plus overhead. Requests at pod level replace
// those of containers. If assumed is true, containers without requests for CPU or memory count as
// 100m and 200Mi.
func requests(pod *v1.Pod, assumed bool) amounts {
	of := func(c v1.Container) amounts {
		a := amountsOf(c.Resources.Requests)
		if assumed {
			if _, ok := a[v1.ResourceCPU]; !ok {
				a[v1.ResourceCPU] = 100
			}
			if _, ok := a[v1.ResourceMemory]; !ok {
				a[v1.ResourceMemory] = 200 << 20
			}
		}
		return a
	}
	running, sidecars, start := amounts{}, amounts{}, amounts{}
	for _, c := range pod.Spec.Containers {
		running = plus(running, of(c))
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars = plus(sidecars, of(c))
			start = largest(start, sidecars)
		} else {
			start = largest(start, plus(sidecars, of(c)))
		}
	}
	all := largest(plus(running, sidecars), start)
	if pod.Spec.Resources != nil {
		for name, v := range amountsOf(pod.Spec.Resources.Requests) {
			all[name] = v
		}
	}
	return plus(all, amountsOf(pod.Spec.Overhead))
}

func used(c *cluster, node string, assumed bool) amounts {
	sum := amounts{}
	for _, p := range c.on(node) {
		sum = plus(sum, requests(p, assumed))
	}
	return sum
}

func lacksResources(c *cluster, pod *v1.Pod, n *v1.Node) bool {
	has := amountsOf(n.Status.Allocatable)
	if int64(len(c.on(n.Name)))+1 > has[v1.ResourcePods] {
		return true
	}
	taken := used(c, n.Name, false)
	for name, want := range requests(pod, false) {
		if want > 0 && want > has[name]-taken[name] {
			return true
		}
	}
	return false
}

func leastAllocatedScores(c *cluster, pod *v1.Pod, nodes []*v1.Node) []int64 {
	out := make([]int64, len(nodes))
	for i, n := range nodes {
		has, want := amountsOf(n.Status.Allocatable), plus(used(c, n.Name, true), requests(pod, true))
		var sum, count int64
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if has[name] == 0 {
				continue
			}
			count++
			if want[name] <= has[name] {
				sum += (has[name] - want[name]) * 100 / has[name]
			}
		}
		if count > 0 {
			out[i] = sum / count
		}
	}
	return out
}

func balancedScores(c *cluster, pod *v1.Pod, nodes []*v1.Node) []int64 {
	req := requests(pod, false)
	if req[v1.ResourceCPU] == 0 && req[v1.ResourceMemory] == 0 {
		return nil
	}
	out := make([]int64, len(nodes))
	for i, n := range nodes {
		has, before := amountsOf(n.Status.Allocatable), used(c, n.Name, false)
		with, without := evenness(has, plus(before, req)), evenness(has, before)
		out[i] = 50 + (50+with-without)/2
	}
	return out
}

// evenness returns 1 minus the standard deviation of the used shares of CPU and memory, scaled to
// scores.
func evenness(has, taken amounts) int64 {
	var shares []float64
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if has[name] != 0 {
			shares = append(shares, math.Min(1, float64(taken[name])/float64(has[name])))
		}
	}
	deviation := 0.0
	if len(shares) == 2 {
		deviation = math.Abs((shares[0] - shares[1]) / 2)
	}
	return int64((1 - deviation) * 100)
}
