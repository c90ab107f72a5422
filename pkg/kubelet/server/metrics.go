// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
)

// requestMetrics contains the metrics about requests to this server.
type requestMetrics struct {
	clock    clock.Clock
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
}

func newRequestMetrics(r prometheus.Registerer, c clock.Clock) *requestMetrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &requestMetrics{
		clock: c,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_http_requests_total",
			Help: "[ALPHA] Number of the http requests received since the server started"}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_http_requests_duration_seconds",
			Help: "[ALPHA] Duration in seconds to serve http requests"}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_http_inflight_requests",
			Help: "[ALPHA] Number of the inflight http requests"}, labels),
	}
	if r != nil {
		r.MustRegister(m.total, m.duration, m.inflight)
	}
	return m
}

func (m *requestMetrics) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		root := pathRoot(r.URL.Path)
		method := r.Method
		if verbOf(method) == "" {
			method = "other"
		}
		labels := []string{method, root, "readwrite", strconv.FormatBool(longRunning(root))}
		m.total.WithLabelValues(labels...).Inc()
		inflight := m.inflight.WithLabelValues(labels...)
		inflight.Inc()
		defer inflight.Dec()
		start := m.clock.Now()
		defer func() { m.duration.WithLabelValues(labels...).Observe(m.clock.Since(start).Seconds()) }()
		next.ServeHTTP(w, r)
	})
}

// pathRoot returns the label value for a path. Unknown paths get the value "other", so that clients
// cannot create any number of label values.
func pathRoot(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	root := parts[0]
	if root == "metrics" && len(parts) > 1 && (parts[1] == "resource" || parts[1] == "probes" || parts[1] == "cadvisor") {
		root += "/" + parts[1]
	}
	switch root {
	case "exec", "attach", "portForward", "run", "containerLogs", "logs", "pods", "runningpods", "stats",
		"healthz", "configz", "statusz", "flagz", "debug", "checkpoint",
		"metrics", "metrics/resource", "metrics/probes", "metrics/cadvisor":
		return root
	}
	return "other"
}

func longRunning(root string) bool {
	switch root {
	case "exec", "attach", "portForward", "debug":
		return true
	}
	return false
}

// resourceMetrics computes the metrics of /metrics/resource from the statistics on each scrape.
type resourceMetrics struct {
	stats Stats
	log   *slog.Logger
}

// Describe implements prometheus.Collector. It sends nothing, because the set of metrics depends on
// the running pods.
func (resourceMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c resourceMetrics) Collect(ch chan<- prometheus.Metric) {
	summary, err := c.stats.Summary(context.Background(), true)
	failed := 0.0
	if err != nil {
		c.log.Error("Failed to measure the resource usage of the node and its pods", "err", err)
		failed = 1
	}
	gauge(ch, "scrape_error", "[ALPHA] 1 if there was an error while getting container metrics, 0 otherwise", failed)
	gauge(ch, "resource_scrape_error",
		"[STABLE] 1 if there was an error while getting container metrics, 0 otherwise", failed)
	if err != nil {
		return
	}
	usage(ch, "node", "the node", summary.Node.CPU, summary.Node.Memory, nil, nil)
	swap(ch, "node", "the node", summary.Node.Swap, nil, nil)
	for i := range summary.Pods {
		p := &summary.Pods[i]
		for j := range p.Containers {
			c := &p.Containers[j]
			names, values := []string{"container", "pod", "namespace"}, []string{c.Name, p.PodRef.Name, p.PodRef.Namespace}
			if !c.StartTime.IsZero() {
				desc := prometheus.NewDesc("container_start_time_seconds",
					"[STABLE] Start time of the container since unix epoch in seconds", names, nil)
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue,
					float64(c.StartTime.UnixNano())/float64(time.Second), values...)
			}
			usage(ch, "container", "the container", c.CPU, c.Memory, names, values)
			swap(ch, "container", "the container", c.Swap, names, values)
		}
		usage(ch, "pod", "the pod", p.CPU, p.Memory, []string{"pod", "namespace"},
			[]string{p.PodRef.Name, p.PodRef.Namespace})
	}
}

func gauge(ch chan<- prometheus.Metric, name, help string, v float64) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
}

// usage sends the CPU time and the memory of a node, pod or container, with the time at which each
// was measured.
func usage(ch chan<- prometheus.Metric, prefix, of string, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats,
	names, values []string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		desc := prometheus.NewDesc(prefix+"_cpu_usage_seconds_total",
			"[STABLE] Cumulative cpu time consumed by "+of+" in core-seconds", names, nil)
		ch <- prometheus.NewMetricWithTimestamp(cpu.Time.Time,
			prometheus.MustNewConstMetric(desc, prometheus.CounterValue,
				float64(*cpu.UsageCoreNanoSeconds)/float64(time.Second), values...))
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		desc := prometheus.NewDesc(prefix+"_memory_working_set_bytes", "[STABLE] Current working set of "+of+
			" in bytes", names, nil)
		ch <- prometheus.NewMetricWithTimestamp(memory.Time.Time,
			prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(*memory.WorkingSetBytes), values...))
	}
}

// swap sends the swap usage of a node, pod or container.
func swap(ch chan<- prometheus.Metric, prefix, of string, s *statsapi.SwapStats, names, values []string) {
	if s != nil && s.SwapUsageBytes != nil {
		desc := prometheus.NewDesc(prefix+"_swap_usage_bytes", "[ALPHA] Current swap usage of "+of+
			" in bytes. Reported only on non-windows systems", names, nil)
		ch <- prometheus.NewMetricWithTimestamp(s.Time.Time,
			prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(*s.SwapUsageBytes), values...))
	}
}
