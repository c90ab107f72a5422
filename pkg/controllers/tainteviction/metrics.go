// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the metrics of one controller. They have Kubernetes' names and help texts.
type metrics struct {
	deletions prometheus.Counter
	latency   prometheus.Histogram
}

const (
	nodeSubsystem   = "taint_eviction_controller"
	deviceSubsystem = "device_taint_eviction_controller"
)

// newNodeMetrics registers the metrics of the controller of nodes' taints. r may be nil.
func newNodeMetrics(r prometheus.Registerer) *metrics {
	return newMetrics(r, prometheus.CounterOpts{
		Subsystem: nodeSubsystem, Name: "pod_deletions_total",
		Help: "[ALPHA] Total number of Pods deleted by TaintEvictionController since its start.",
	}, prometheus.HistogramOpts{
		Subsystem: nodeSubsystem, Name: "pod_deletion_duration_seconds",
		Help: "[ALPHA] Latency, in seconds, between the time when a taint effect has been activated for " +
			"the Pod and its deletion via TaintEvictionController.",
	})
}

// newDeviceMetrics registers the metrics of the controller of devices' taints. r may be nil.
func newDeviceMetrics(r prometheus.Registerer) *metrics {
	return newMetrics(r, prometheus.CounterOpts{
		Subsystem: deviceSubsystem, Name: "pod_deletions_total",
		Help: "[ALPHA] Total number of Pods deleted by DeviceTaintEvictionController since its start.",
	}, prometheus.HistogramOpts{
		Subsystem: deviceSubsystem, Name: "pod_deletion_duration_seconds",
		Help: "[ALPHA] Latency, in seconds, between the time when a device taint effect has been " +
			"activated and a Pod's deletion via DeviceTaintEvictionController.",
	})
}

func newMetrics(r prometheus.Registerer, deletions prometheus.CounterOpts, latency prometheus.HistogramOpts) *metrics {
	auto := promauto.With(r)
	latency.Buckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}
	return &metrics{deletions: auto.NewCounter(deletions), latency: auto.NewHistogram(latency)}
}

// deleted counts a deleted pod. late is the time from when the pod had to be deleted until it was
// deleted.
func (m *metrics) deleted(late time.Duration) {
	m.deletions.Inc()
	m.latency.Observe(late.Seconds())
}
