// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// critical is the lowest priority of system-critical pods.
const critical = 2_000_000_000

// group contains the pods that are ended at the same time. Their priorities are at least the group's
// lower bound (the field from), and less than the next group's. grace is the maximum time that the
// group may take to end.
type group struct {
	from  int32
	grace time.Duration
	pods  []*v1.Pod
}

// groups returns the groups of a configuration, lowest priority first. It returns none if the
// configuration does not set how long pods may take to end.
func groups(c *kubeletconfig.KubeletConfiguration) []group {
	var out []group
	for _, p := range c.ShutdownGracePeriodByPodPriority {
		out = append(out, group{from: p.Priority, grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	if total, last := c.ShutdownGracePeriod.Duration,
		c.ShutdownGracePeriodCriticalPods.Duration; len(out) == 0 && total > 0 {
		out = []group{{from: 0, grace: total - last}, {from: critical, grace: last}}
	}
	slices.SortFunc(out, func(a, b group) int { return cmp.Compare(a.from, b.from) })
	return out
}

// total returns the sum of the times of all groups of pods, which are ended one after the other.
func total(list []group) time.Duration {
	sum := time.Duration(0)
	for _, g := range list {
		sum += g.grace
	}
	return sum
}

// fill adds each pod to its group. A pod whose priority is below all groups belongs to the lowest
// group.
func fill(list []group, pods []*v1.Pod) []group {
	out := slices.Clone(list)
	for _, pod := range pods {
		priority := int32(0)
		if pod.Spec.Priority != nil {
			priority = *pod.Spec.Priority
		}
		i, exact := slices.BinarySearchFunc(out, priority, func(g group, p int32) int { return cmp.Compare(g.from, p) })
		if !exact {
			i = max(i-1, 0)
		}
		out[i].pods = append(slices.Clip(out[i].pods), pod)
	}
	return out
}

// graceOf returns the grace period of a pod in seconds: its own one, but not longer than that of
// its group (the argument most).
func graceOf(pod *v1.Pod, most time.Duration) int64 {
	seconds := int64(most.Seconds())
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		seconds = min(seconds, *own)
	}
	return seconds
}
