// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the controller's metrics. They have Kubernetes' names and help texts.
type metrics struct {
	deletions prometheus.Counter
	latency   prometheus.Histogram
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	const subsystem = "taint_eviction_controller"
	auto := promauto.With(r)
	return &metrics{
		deletions: auto.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "pod_deletions_total",
			Help: "[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.",
		}),
		latency: auto.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "pod_deletion_duration_seconds",
			Help: "[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for " +
				"the Pod and its deletion via TaintEvictionController.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
	}
}

// deleted counts a deleted pod. late is the time from when the pod had to be deleted until it was
// deleted.
func (m *metrics) deleted(late time.Duration) {
	m.deletions.Inc()
	m.latency.Observe(late.Seconds())
}
