// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/source"
)

// newState returns the metrics about the pods that the node has now.
func newState(s *shared, pods *podView) *metrics.State {
	state := &metrics.State{Node: s.cfg.NodeName, CgroupVersion: 1, Census: s.workers.Census, Counts: pods.counts}
	if cgroup.Unified(cgroupMount) {
		state.CgroupVersion = 2
	}
	return state
}

func (p *podView) counts() metrics.Counts {
	bound, _ := p.sources.api.bound()
	mirrors := 0
	for _, pod := range bound {
		if source.Mirror(pod) {
			mirrors++
		}
	}
	return countPods(p.Pods(), mirrors)
}

// countPods counts the node's pods. The argument pods contains no mirror pods, and all its statuses
// are the newest; mirrors is the number of mirror pods.
func countPods(pods []*v1.Pod, mirrors int) metrics.Counts {
	out := metrics.Counts{Desired: map[bool]int{}, Active: map[bool]int{}, Mirrors: mirrors}
	for _, pod := range pods {
		static := source.Static(pod)
		out.Desired[static]++
		out.Ephemeral += len(pod.Spec.EphemeralContainers)
		if !ended(pod) {
			out.Active[static]++
		}
	}
	return out
}
