// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts.
type metrics struct {
	zoneHealth, zoneSize, unhealthy *prometheus.GaugeVec
	evictions                       *prometheus.CounterVec
	oneNode, allNodes               prometheus.Histogram
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	const subsystem = "node_collector"
	auto, zone := promauto.With(r), []string{"zone"}
	return &metrics{
		zoneHealth: auto.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "zone_health",
			Help: "[ALPHA] Gauge measuring percentage of healthy nodes per zone.",
		}, zone),
		zoneSize: auto.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "zone_size",
			Help: "[ALPHA] Gauge measuring number of registered Nodes per zones.",
		}, zone),
		unhealthy: auto.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "unhealthy_nodes_in_zone",
			Help: "[ALPHA] Gauge measuring number of not Ready Nodes per zones.",
		}, zone),
		evictions: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "evictions_total",
			Help: "[STABLE] Number of Node evictions that happened since current instance of NodeController started.",
		}, zone),
		oneNode: auto.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "update_node_health_duration_seconds",
			Help:    "[ALPHA] Duration in seconds for NodeController to update the health of a single node.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		allNodes: auto.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "update_all_nodes_health_duration_seconds",
			Help:    "[ALPHA] Duration in seconds for NodeController to update the health of all nodes.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		}),
	}
}

// setZone sets the metrics about the nodes of a zone. The health of a zone without nodes is 100 %.
func (m *metrics) setZone(zone string, ready, notReady int) {
	health := 100.0
	if all := ready + notReady; all > 0 {
		health = float64(100*ready) / float64(all)
	}
	m.zoneSize.WithLabelValues(zone).Set(float64(ready + notReady))
	m.zoneHealth.WithLabelValues(zone).Set(health)
	m.unhealthy.WithLabelValues(zone).Set(float64(notReady))
}
