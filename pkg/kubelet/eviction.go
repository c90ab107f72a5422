// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/images"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// newEviction returns the manager that evicts pods when the node runs out of memory, disk space or
// process IDs.
func newEviction(s *shared, pods *podView, u *usage, collector *images.Collector) (*eviction.Manager, error) {
	c := s.cfg.Kubelet
	thresholds, err := eviction.Parse(c)
	if err != nil {
		return nil, err
	}
	return eviction.New(eviction.Config{
		Clock: s.cfg.Clock, Log: s.cfg.Log, Thresholds: thresholds,
		Hold: c.EvictionPressureTransitionPeriod.Duration, MaxGrace: int64(c.EvictionMaxPodGracePeriod),
		Observe: u.observe, Reclaim: collector.RemoveUnused, Pods: pods.live, Usage: u.podUsage,
		Evict: s.evict, Event: s.events.node, Changed: s.node.Poke, Metrics: s.metrics.upkeep,
	}), nil
}

func (s *shared) evict(e eviction.Eviction) {
	s.events.pod(e.Pod, "", v1.EventTypeWarning, eviction.Reason, e.Message)
	s.workers.Evict(e.Pod.UID, status.Verdict{
		Phase: v1.PodFailed, Reason: eviction.Reason, Message: e.Message, Disruption: e.Disruption,
	}, e.Grace)
}

// pressures returns the pressure conditions that are true now, for the Node's status. They are the
// keys of the result; the values are empty.
func pressures(m *eviction.Manager) map[v1.NodeConditionType]string {
	out := map[v1.NodeConditionType]string{}
	for _, c := range m.Pressures() {
		out[c] = ""
	}
	return out
}
