// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Names of operations on the cgroups of pods, for label values.
const (
	CgroupCreate  = "create"
	CgroupUpdate  = "update"
	CgroupDestroy = "destroy"
)

// Node holds the metrics about images, evictions, cgroups and the runtime's events. It is safe for
// concurrent use.
type Node struct {
	evictions *prometheus.CounterVec
	age       *prometheus.HistogramVec
	pulls     *prometheus.HistogramVec
	ensured   *prometheus.CounterVec
	cgroups   *prometheus.HistogramVec

	relist, interval prometheus.Histogram
	seen             prometheus.Gauge
	streams, broken  prometheus.Counter
	latency          prometheus.Histogram
}

// NewNode registers the metrics; r may be nil.
func NewNode(r prometheus.Registerer) *Node {
	m := &Node{
		evictions: counter("kubelet_evictions", "[ALPHA] Number of pods that were evicted because the node "+
			"ran out of a resource or because they exceeded a limit, by signal.", "eviction_signal"),
		age: histogram("kubelet_eviction_stats_age_seconds",
			"[ALPHA] Age of the measurement of each crossed signal when a pod was evicted, in seconds.",
			durations, "eviction_signal"),
		pulls: histogram("kubelet_image_pull_duration_seconds", "[ALPHA] Duration of image pulls in "+
			"seconds, including the wait for other pulls, by the size of the image.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
			"image_size_in_bytes"),
		ensured: counter("kubelet_image_manager_ensure_image_requests_total",
			"[ALPHA] Number of ensure-image requests processed by the kubelet.", "pull_policy", "present_locally",
			"pull_required"),
		cgroups: histogram("kubelet_cgroup_manager_duration_seconds",
			"[ALPHA] Duration of creating, updating or destroying a cgroup in seconds.", durations, "operation_type"),
		relist: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pleg_relist_duration_seconds",
			Buckets: durations,
			Help:    "[ALPHA] Duration of listing all pods of the runtime in seconds."}),
		interval: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_pleg_relist_interval_seconds",
			Buckets: durations,
			Help:    "[ALPHA] Interval between listings of the runtime in seconds."}),
		seen: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_pleg_last_seen_seconds",
			Help: "[ALPHA] Time of the last listing of the runtime in seconds since 1970."}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_evented_pleg_connection_success_count",
			Help: "[ALPHA] Number of event streams of the runtime that were opened."}),
		broken: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_evented_pleg_connection_error_count",
			Help: "[ALPHA] Number of event streams of the runtime that could not be opened, or that broke."}),
		latency: prometheus.NewHistogram(
			prometheus.HistogramOpts{Name: "kubelet_evented_pleg_connection_latency_seconds", Buckets: durations,
				Help: "[ALPHA] Time from an event in the runtime to its arrival, in seconds."}),
	}
	register(r, m.evictions, m.age, m.pulls, m.ensured, m.cgroups, m.relist, m.interval, m.seen, m.streams, m.broken,
		m.latency)
	return m
}

// Evicted counts a pod that was evicted because of a signal.
func (m *Node) Evicted(signal string) { m.evictions.WithLabelValues(signal).Inc() }

// StatsAge records how old a measurement was when the kubelet acted on its eviction signal.
func (m *Node) StatsAge(signal string, age time.Duration) {
	m.age.WithLabelValues(signal).Observe(age.Seconds())
}

// sizes are the size classes of images by their lower bounds in bytes, largest first.
var sizes = []struct {
	above uint64
	label string
}{
	{100 << 30, "GT100GB"}, {60 << 30, "60GB-100GB"}, {40 << 30, "40GB-60GB"}, {30 << 30, "30GB-40GB"},
	{20 << 30, "20GB-30GB"}, {10 << 30, "10GB-20GB"},
	{5 << 30, "5GB-10GB"}, {1 << 30, "1GB-5GB"}, {500 << 20, "500MB-1GB"}, {100 << 20, "100MB-500MB"},
	{10 << 20, "10MB-100MB"}, {0, "0-10MB"},
}

// Pulled records the duration of a pull of an image. size is the image's size in bytes; 0 means
// that it is unknown.
func (m *Node) Pulled(size uint64, took time.Duration) {
	label := "N/A"
	for _, s := range sizes {
		if size > s.above {
			label = s.label
			break
		}
	}
	m.pulls.WithLabelValues(label).Observe(took.Seconds())
}

// Unknown is the value of a label of EnsuredImage that the kubelet could not determine.
const Unknown = "unknown"

// EnsuredImage counts a request for a container's image. present says whether the image was on the
// node, and required whether it had to be pulled. Their values are "true", "false" or Unknown.
func (m *Node) EnsuredImage(policy, present, required string) {
	m.ensured.WithLabelValues(strings.ToLower(policy), present, required).Inc()
}

// Cgroup records the duration of an operation on a cgroup.
func (m *Node) Cgroup(operation string, took time.Duration) {
	m.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// Listed records a listing of the runtime's containers, which took from the time begun to the time
// ended. The argument last is the time when the previous listing began, or zero if there was none.
func (m *Node) Listed(last, begun, ended time.Time) {
	if !last.IsZero() {
		m.interval.Observe(begun.Sub(last).Seconds())
	}
	m.relist.Observe(ended.Sub(begun).Seconds())
	m.seen.Set(float64(begun.Unix()))
}

// Stream counts event streams of the runtime. If ok is true, it counts an opened stream. Otherwise
// it counts a stream that could not be opened or that broke.
func (m *Node) Stream(ok bool) {
	if ok {
		m.streams.Inc()
	} else {
		m.broken.Inc()
	}
}

// Event records the time between an event in the runtime and its arrival at the kubelet.
func (m *Node) Event(took time.Duration) { m.latency.Observe(max(took, 0).Seconds()) }
