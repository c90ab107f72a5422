// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the names and buckets of kube-proxy's metrics, except elements, which kube-proxy
// does not have.
type metrics struct {
	// Changes of objects, and rounds that apply them.

	sync, full, partial         *prometheus.HistogramVec
	lastSync, lastQueued        *prometheus.GaugeVec
	programming                 *prometheus.HistogramVec
	endpointChanges, svcChanges prometheus.Counter
	endpointWaiting, svcWaiting prometheus.Gauge
	pending                     struct{ slices, svcs int } // values of the gauges, for the goroutine of Run

	// State of the tables and services.

	failures, pruneFailures *prometheus.CounterVec
	elements                *prometheus.CounterVec
	noLocal                 *prometheus.GaugeVec

	// Responses of the health server.

	healthz, livez *prometheus.CounterVec

	// Checks of tracked connections.

	conntrack        *prometheus.HistogramVec
	conntrackDeleted *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	const ns = "kubeproxy"
	family := []string{"ip_family"}
	var all []prometheus.Collector
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Name: name, Help: help,
			Buckets: buckets}, family)
		all = append(all, v)
		return v
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Name: name, Help: help}, labels)
		all = append(all, v)
		return v
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help}, labels)
		all = append(all, v)
		return v
	}
	single := func(name, help string) prometheus.Counter { return counters(name, help).WithLabelValues() }
	waiting := func(name, help string) prometheus.Gauge { return gauges(name, help).WithLabelValues() }
	ms := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		sync: histogram("sync_proxy_rules_duration_seconds", "[ALPHA] SyncProxyRules latency in seconds", ms),
		full: histogram("sync_full_proxy_rules_duration_seconds",
			"[ALPHA] SyncProxyRules latency in seconds for full resyncs", ms),
		partial: histogram("sync_partial_proxy_rules_duration_seconds",
			"[ALPHA] SyncProxyRules latency in seconds for partial resyncs", ms),
		lastSync: gauges("sync_proxy_rules_last_timestamp_seconds",
			"[ALPHA] The last time proxy rules were successfully synced", family...),
		lastQueued: gauges("sync_proxy_rules_last_queued_timestamp_seconds",
			"[ALPHA] The last time a sync of proxy rules was queued", family...),
		programming: histogram("network_programming_duration_seconds",
			"[ALPHA] In Cluster Network Programming Latency in seconds", programmingBuckets()),
		endpointChanges: single("sync_proxy_rules_endpoint_changes_total", "[ALPHA] Cumulative proxy rules Endpoint changes"),
		svcChanges:      single("sync_proxy_rules_service_changes_total", "[ALPHA] Cumulative proxy rules Service changes"),
		endpointWaiting: waiting("sync_proxy_rules_endpoint_changes_pending", "[ALPHA] Pending proxy rules Endpoint changes"),
		svcWaiting:      waiting("sync_proxy_rules_service_changes_pending", "[ALPHA] Pending proxy rules Service changes"),
		failures: counters("sync_proxy_rules_nftables_sync_failures_total",
			"[ALPHA] Cumulative proxy nftables sync failures", family...),
		pruneFailures: counters("sync_proxy_rules_nftables_cleanup_failures_total",
			"[ALPHA] Cumulative proxy nftables cleanup failures", family...),
		noLocal: gauges("sync_proxy_rules_no_local_endpoints_total",
			"[ALPHA] Number of services with a Local traffic policy and no endpoints", "traffic_policy", "ip_family"),
		healthz: counters("proxy_healthz_total", "[ALPHA] Cumulative proxy healthz HTTP status", "code"),
		livez:   counters("proxy_livez_total", "[ALPHA] Cumulative proxy livez HTTP status", "code"),
		conntrack: histogram("conntrack_reconciler_sync_duration_seconds",
			"[ALPHA] ReconcileConntrackFlowsLatency latency in seconds", ms),
		conntrackDeleted: counters("conntrack_reconciler_deleted_entries_total",
			"[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler", family...),
		elements: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keelson_proxy_elements_total",
			Help: "Number of elements that were added to nftables sets and maps or deleted from them."}, family),
	}
	r.MustRegister(append(all, m.elements)...)
	return m
}

func programmingBuckets() []float64 {
	var b []float64
	b = append(b, prometheus.LinearBuckets(0.25, 0.25, 2)...)
	b = append(b, prometheus.LinearBuckets(1, 1, 59)...)
	b = append(b, prometheus.LinearBuckets(60, 5, 12)...)
	return append(b, prometheus.LinearBuckets(120, 30, 7)...)
}

// collected counts the changes of a batch, which wait until applied is called. Changes of a failed
// round wait until a later round succeeds.
func (m *metrics) collected(b *batch) {
	m.svcChanges.Add(float64(b.svcs))
	m.endpointChanges.Add(float64(b.slices))
	m.pending.svcs += b.svcs
	m.pending.slices += b.slices
	m.showPending()
}

// applied records that no changes wait any more.
func (m *metrics) applied() {
	m.pending.svcs, m.pending.slices = 0, 0
	m.showPending()
}

func (m *metrics) showPending() {
	m.svcWaiting.Set(float64(m.pending.svcs))
	m.endpointWaiting.Set(float64(m.pending.slices))
}

// answered counts a response of the health server by its path and status code.
func (m *metrics) answered(path string, code int) {
	v := m.healthz
	if path == "livez" {
		v = m.livez
	}
	if code != http.StatusOK {
		code = http.StatusServiceUnavailable
	}
	v.WithLabelValues(strconv.Itoa(code)).Inc()
}
