// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
)

// startup holds the metrics of the time from a pod's creation in the API until the kubelet sees in
// the API that all its containers have started. It measures pods whose status no kubelet had set
// when this process first saw them. Like Kubernetes, it leaves out pods that the scheduler could
// not place immediately. It is safe for concurrent use.
type startup struct {
	clock      clock.Clock
	total, sli prometheus.Histogram

	mu   sync.Mutex
	pods map[types.UID]*starting
}

// starting is a pod whose start is measured.
type starting struct {
	pulls time.Duration // how long pulls of the pod's images have taken
	done  bool          // the start was measured, or must not be measured
}

func newStartup(r prometheus.Registerer, clk clock.Clock) *startup {
	buckets := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800,
		2700, 3600}
	s := &startup{
		clock: clk, pods: map[types.UID]*starting{},
		total: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_total_duration_seconds",
			Help: "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init " +
				"containers, measured from pod creation timestamp to when all its containers are reported as started and " +
				"observed via watch",
			Buckets: buckets,
		}),
		sli: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_sli_duration_seconds",
			Help: "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, " +
				"measured from pod creation timestamp to when all its containers are reported as started and observed via " +
				"watch",
			Buckets: buckets,
		}),
	}
	r.MustRegister(s.total, s.sli)
	return s
}

// observe is called with each version of a pod that the kubelet receives from the API.
func (s *startup) observe(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[pod.UID]
	switch {
	case ended(pod):
		delete(s.pods, pod.UID)
	case p == nil && pod.Status.StartTime == nil:
		s.pods[pod.UID] = &starting{done: unschedulable(pod)}
	case p == nil || p.done:
	case unschedulable(pod):
		p.done = true
	case allStarted(pod):
		p.done = true
		took := s.clock.Since(pod.CreationTimestamp.Time)
		s.total.Observe(took.Seconds())
		if !stateful(pod) {
			s.sli.Observe((took - p.pulls - initialization(pod)).Seconds())
		}
	}
}

// pulled records how long a pull of an image for a pod has taken. A worker pulls the images of its
// pod one after the other, so the times of a pod do not overlap.
func (s *startup) pulled(uid types.UID, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[uid]; p != nil {
		p.pulls += took
	}
}

// forget drops the state of a pod that was deleted.
func (s *startup) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// unschedulable reports whether the scheduler has found no node for the pod.
func unschedulable(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse
	})
}

// allStarted reports whether all containers of a pod run according to its status.
func allStarted(pod *v1.Pod) bool {
	return len(pod.Status.ContainerStatuses) > 0 &&
		!slices.ContainsFunc(pod.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
			return c.State.Running == nil || c.State.Running.StartedAt.IsZero()
		})
}

// stateful reports whether a pod has a volume whose data does not come from the API and outlives
// the pod. The service level indicator for the start of pods leaves out such pods.
func stateful(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// initialization returns how long the init containers of a pod ran. The status of a sidecar, which
// still runs, has no such time.
func initialization(pod *v1.Pod) time.Duration {
	sum := time.Duration(0)
	for i := range pod.Status.InitContainerStatuses {
		if end := pod.Status.InitContainerStatuses[i].State.Terminated; end != nil {
			sum += end.FinishedAt.Sub(end.StartedAt.Time)
		}
	}
	return sum
}
