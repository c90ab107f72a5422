// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/source"
)

// state is what /metrics tells of the pods that are here now.
func (k *Kubelet) state() *metrics.State {
	s := &metrics.State{Node: k.cfg.NodeName, CgroupVersion: 1, Census: k.pool.Census, Counts: k.podCounts}
	if cgroup.Unified(cgroupMount) {
		s.CgroupVersion = 2
	}
	return s
}

func (k *Kubelet) podCounts() metrics.Counts {
	bound, _ := k.sources.bound()
	mirrors := 0
	for _, pod := range bound {
		if source.Mirror(pod) {
			mirrors++
		}
	}
	return countPods(k.Pods(), mirrors)
}

// countPods counts the node's pods, given with their newest statuses and without mirrors.
func countPods(pods []*v1.Pod, mirrors int) metrics.Counts {
	out := metrics.Counts{Desired: map[bool]int{}, Active: map[bool]int{}, Mirrors: mirrors}
	for _, pod := range pods {
		static := source.Static(pod)
		out.Desired[static]++
		out.Ephemeral += len(pod.Spec.EphemeralContainers)
		if pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
			out.Active[static]++
		}
	}
	return out
}
