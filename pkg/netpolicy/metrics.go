// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sync     *prometheus.HistogramVec
	failures *prometheus.CounterVec
	guarded  *prometheus.GaugeVec
	bridged  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		sync: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "keelson_networkpolicy_sync_duration_seconds",
			Help:    "Time in seconds from when the proxy learns of a change until the change is in the kernel.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"ip_family"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keelson_networkpolicy_sync_failures_total",
			Help: "Number of nftables transactions that the kernel rejected.",
		}, []string{"ip_family"}),
		guarded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "keelson_networkpolicy_isolated_addresses",
			Help: "Number of addresses of this node's pods that policies isolate.",
		}, []string{"ip_family", "direction"}),
		bridged: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "keelson_networkpolicy_bridge_filtered",
			Help: "1 if network policies apply to packets between ports of a bridge (br_netfilter). 0 if " +
				"they are not enforced between pods on the same bridge.",
		}),
	}
	if r != nil {
		r.MustRegister(m.sync, m.failures, m.guarded, m.bridged)
	}
	return m
}
