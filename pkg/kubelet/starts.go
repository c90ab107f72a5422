// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/kubelet/worker"
)

// starts holds the metrics of pod starts.
type starts struct {
	whole  prometheus.Histogram
	phases *prometheus.HistogramVec
}

// own is the value of the label "phase" for the time that the kubelet itself needs to start a pod:
// the total minus the time that the kubelet waited for the runtime, images and lifecycle handlers.
const own = "kubelet"

func newStarts(r prometheus.Registerer) starts {
	s := starts{
		whole: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pod_start_duration_seconds",
			Help:    "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "keelson_kubelet_pod_start_phase_seconds",
			Help: "Duration of each phase of a pod's start. The phase kubelet is the total minus the " +
				"time spent waiting for the runtime, images and handlers.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"phase"}),
	}
	// Create all series now, with the value 0, so that the rate of a series includes the first pod.
	for _, p := range worker.Phases() {
		s.phases.WithLabelValues(string(p))
	}
	s.phases.WithLabelValues(own)
	r.MustRegister(s.whole, s.phases)
	return s
}

// observe records the time from when the kubelet first saw a pod until the pod ran, and the time of
// each phase.
func (s starts) observe(took time.Duration, phases map[worker.Phase]time.Duration) {
	s.whole.Observe(took.Seconds())
	rest := took
	for _, p := range worker.Phases() {
		s.phases.WithLabelValues(string(p)).Observe(phases[p].Seconds())
		if p.Runtime() || p == worker.PhaseImages || p == worker.PhaseHooks {
			rest -= phases[p]
		}
	}
	s.phases.WithLabelValues(own).Observe(max(rest, 0).Seconds())
}
