// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts. This
// includes Kubernetes' misspelled name cirdset_max_cidrs and its wrong help text for the tries.
type metrics struct {
	allocations, releases *prometheus.CounterVec
	maximum, usage        *prometheus.GaugeVec
	tries                 *prometheus.HistogramVec
	running               prometheus.Gauge
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	const subsystem = "node_ipam_controller"
	auto, cluster := promauto.With(r), []string{"clusterCIDR"}
	return &metrics{
		allocations: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "cidrset_cidrs_allocations_total",
			Help: "[ALPHA] Counter measuring total number of CIDR allocations.",
		}, cluster),
		releases: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "cidrset_cidrs_releases_total",
			Help: "[ALPHA] Counter measuring total number of CIDR releases.",
		}, cluster),
		maximum: auto.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "cirdset_max_cidrs",
			Help: "[ALPHA] Maximum number of CIDRs that can be allocated.",
		}, cluster),
		usage: auto.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "cidrset_usage_cidrs",
			Help: "[ALPHA] Gauge measuring percentage of allocated CIDRs.",
		}, cluster),
		tries: auto.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "cidrset_allocation_tries_per_request",
			Help:    "[ALPHA] Number of endpoints added on each Service sync",
			Buckets: prometheus.ExponentialBuckets(1, 5, 5),
		}, cluster),
		running: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "running_managed_controllers",
			Help: "[BETA] Indicates where instances of a controller are currently running",
		}, []string{"name", "manager"}).WithLabelValues("nodeipam", "kube-controller-manager"),
	}
}
