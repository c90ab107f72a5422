// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/resource"
)

// metrics has Kubernetes' metrics of requests.
type metrics struct {
	clock       clock.Clock
	total       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	longRunning *prometheus.GaugeVec
	inFlight    *prometheus.GaugeVec
	sizes       *prometheus.HistogramVec // sizes in bytes of responses to reads
	deprecated  *prometheus.GaugeVec
	watchLists  *prometheus.HistogramVec // time until the initial events of a watch were sent
	sli         *prometheus.HistogramVec // duration of requests without the time that webhooks took

	events     *prometheus.CounterVec   // number of events that watches sent
	eventSizes *prometheus.HistogramVec // sizes in bytes of events that watches sent
	bodies     *prometheus.HistogramVec // sizes in bytes of the bodies of requests

	reading, mutating prometheus.Gauge // the gauges in inFlight

	mu    sync.RWMutex
	known map[requestLabels]*requestMetrics
}

// requestLabels are the labels of the metrics for one request.
type requestLabels struct {
	verb, group, version, resource, subresource, scope, dryRun string
	code                                                       int
}

// requestMetrics are the metrics of requests with the same labels. They are cached, because looking
// them up by labels would take as long as answering a small request.
type requestMetrics struct {
	total                     prometheus.Counter
	duration, sli, size, body prometheus.Observer
}

// watchMetrics are the metrics for the watches of a resource.
type watchMetrics struct {
	events prometheus.Counter
	sizes  prometheus.Observer
}

// event records that an event of size bytes was sent.
func (m *watchMetrics) event(size int) {
	m.events.Inc()
	m.sizes.Observe(float64(size))
}

// watched returns the metrics for the watches of t's resource.
func (m *metrics) watched(t *target) watchMetrics {
	labels := []string{t.info.APIGroup, t.info.APIVersion, t.info.Resource}
	return watchMetrics{m.events.WithLabelValues(labels...), m.eventSizes.WithLabelValues(labels...)}
}

// of returns the metrics of requests with the labels l.
func (m *metrics) of(l requestLabels) *requestMetrics {
	m.mu.RLock()
	k := m.known[l]
	m.mu.RUnlock()
	if k != nil {
		return k
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k = m.known[l]; k != nil {
		return k
	}
	labels := l.values()
	k = &requestMetrics{total: m.total.WithLabelValues(append([]string{strconv.Itoa(l.code), l.dryRun}, labels...)...)}
	if !longRunning(l.verb) {
		k.duration = m.duration.WithLabelValues(append([]string{l.dryRun}, labels...)...)
		k.sli = m.sli.WithLabelValues(labels...)
	}
	if reads(l.verb) {
		k.size = m.sizes.WithLabelValues(labels...)
	}
	if verb := bodyVerb(l.verb); verb != "" && l.resource != "" {
		k.body = m.bodies.WithLabelValues(l.group, l.resource, verb)
	}
	m.known[l] = k
	return k
}

// values returns the values of the labels that all metrics of requests have in common.
func (l *requestLabels) values() []string {
	return []string{l.verb, l.group, l.version, l.resource, l.subresource, l.scope, "apiserver"}
}

// bodyVerb returns the name of a verb in the metric of the sizes of bodies, or "" if the body of such a
// request is not read.
func bodyVerb(verb string) string {
	switch verb {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch, "APPLY":
		return "patch"
	case http.MethodDelete:
		return "delete"
	case "DELETECOLLECTION":
		return "delete_collection"
	}
	return ""
}

func longRunning(verb string) bool { return verb == "WATCH" || verb == "CONNECT" }
func reads(verb string) bool       { return verb == "GET" || verb == "LIST" }

func newMetrics(registerer prometheus.Registerer, clk clock.Clock) (*metrics, error) {
	labels := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	m := &metrics{
		clock: clk,
		known: map[requestLabels]*requestMetrics{},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, " +
				"version, resource, scope, component, and HTTP response code.",
		}, append([]string{"code", "dry_run"}, labels...)),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds",
			Help: "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, " +
				"version, resource, subresource, scope and component.",
			Buckets: []float64{
				0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
			},
		}, append([]string{"dry_run"}, labels...)),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, " +
				"version, resource, scope and component. Not all requests are tracked this way.",
		}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests",
			Help: "[STABLE] Maximal number of currently used inflight request limit of this apiserver per " +
				"request kind in last second.",
		}, []string{"request_kind"}),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes",
			Help: "[STABLE] Response size distribution in bytes for each group, version, verb, resource, " +
				"subresource, scope and component.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, labels),
		deprecated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis",
			Help: "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, " +
				"version, resource, subresource, and removed_release.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		watchLists: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_watch_list_duration_seconds",
			Help: "[BETA] Response latency distribution in seconds for watch list requests broken by " +
				"group, version, resource and scope.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2, 4, 6, 8, 10, 15, 20, 30, 45, 60},
		}, []string{"group", "version", "resource", "scope"}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_sli_duration_seconds",
			Help: "[ALPHA] Response latency distribution (not counting webhook duration and priority & fairness queue " +
				"wait times) in seconds for each verb, group, version, resource, subresource, scope and component.",
			Buckets: []float64{
				0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
			},
		}, labels),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "[BETA] Number of events sent in watch clients",
		}, []string{"group", "version", "resource"}),
		eventSizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_events_sizes",
			Help:    "[BETA] Watch event size distribution in bytes",
			Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
		}, []string{"group", "version", "resource"}),
		bodies: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_body_size_bytes",
			Help:    "[ALPHA] Apiserver request body size in bytes broken out by resource and verb.",
			Buckets: prometheus.LinearBuckets(50000, 100000, 31),
		}, []string{"group", "resource", "verb"}),
	}
	m.reading, m.mutating = m.inFlight.WithLabelValues("readOnly"), m.inFlight.WithLabelValues("mutating")
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.total, m.duration, m.longRunning, m.inFlight, m.sizes,
		m.deprecated, m.watchLists, m.sli, m.events, m.eventSizes, m.bodies} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// metricVerb returns the verb label. It is the method, except for lists, watches, deletes of a
// collection, applies and connections to a process. All unknown methods share one label, because
// clients can choose any name.
func metricVerb(r *http.Request, info *request.RequestInfo, connect bool) string {
	switch {
	case connect:
		return "CONNECT"
	case info.Verb == "list", info.Verb == "watch", info.Verb == "deletecollection":
		return strings.ToUpper(info.Verb)
	case r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		return "APPLY"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect:
		return r.Method
	}
	return "OTHER"
}

func metricScope(info *request.RequestInfo) string {
	switch {
	case info.Name != "", info.Verb == "create":
		return "resource"
	case info.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// begin counts a request as running. The caller calls the returned function when the request has
// ended. Unknown resources are counted without their names, because clients can choose any name.
func (m *metrics) begin(w http.ResponseWriter, r *http.Request, info *request.RequestInfo,
	t *target) (*recorder, func()) {
	rec := &recorder{ResponseWriter: w}
	if t == nil {
		t = &target{}
	}
	connect := t.endpoint != nil && t.sub != nil && !t.sub.View && t.sub.Scale == nil
	labels := requestLabels{verb: metricVerb(r, info, connect), scope: metricScope(info)}
	deprecated, removed := false, ""
	if t.endpoint != nil {
		labels.group, labels.version, labels.resource, labels.subresource = info.APIGroup, info.APIVersion,
			info.Resource, t.subresource()
		deprecated, removed = deprecation(t.version())
	}
	if deprecated {
		m.deprecated.WithLabelValues(info.APIGroup, info.APIVersion, info.Resource, t.subresource(), removed).Set(1)
	}
	if strings.Contains(r.URL.RawQuery, "dryRun=All") {
		labels.dryRun = "All"
	}
	running := m.mutating
	switch {
	case longRunning(labels.verb):
		running = m.longRunning.WithLabelValues(labels.values()...)
	case reads(labels.verb):
		running = m.reading
	}
	running.Inc()
	start := m.clock.Now()
	return rec, func() {
		running.Dec()
		if deprecated {
			audit.AddAuditAnnotation(r.Context(), "k8s.io/deprecated", "true")
		}
		if removed != "" {
			audit.AddAuditAnnotation(r.Context(), "k8s.io/removed-release", removed)
		}
		labels.code = rec.code()
		k := m.of(labels)
		if k.duration != nil {
			took := m.clock.Since(start)
			k.duration.Observe(took.Seconds())
			k.sli.Observe((took - t.webhooks).Seconds())
		}
		if k.size != nil {
			k.size.Observe(float64(rec.size))
		}
		if k.body != nil && t.bodyRead {
			k.body.Observe(float64(t.bodySize))
		}
		k.total.Inc()
	}
}

// watchList returns a function that records how long the initial events of a watch took. It returns
// nil if the watch has no initial events.
func (m *metrics) watchList(t *target, asked *bool) func() {
	if asked == nil || !*asked {
		return nil
	}
	start := m.clock.Now()
	return func() {
		m.watchLists.WithLabelValues(t.info.APIGroup, t.info.APIVersion, t.info.Resource,
			metricScope(t.info)).Observe(m.clock.Since(start).Seconds())
	}
}

// deprecation reports whether a version is deprecated, and returns the first release of Kubernetes that
// does not serve a deprecated version, for example "1.39". v may be nil.
func deprecation(v *resource.Version) (deprecated bool, removed string) {
	deprecated = v != nil && v.Deprecated != ""
	if deprecated && v.Removed != 0 {
		removed = fmt.Sprintf("1.%d", v.Removed)
	}
	return deprecated, removed
}

// recorder is a response writer that records the status code and the size of a response.
type recorder struct {
	http.ResponseWriter
	status int
	size   int64
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.ResponseWriter.Write(p)
	r.size += int64(n)
	return n, err
}

// WriteHeader implements http.ResponseWriter. It records the first status code.
func (r *recorder) WriteHeader(code int) {
	if r.status == 0 {
		r.status = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher, for handlers that do not use http.ResponseController.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what is buffered. http.ResponseController calls it.
func (r *recorder) FlushError() error { return http.NewResponseController(r.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if r.status == 0 {
		r.status = http.StatusSwitchingProtocols
	}
	return http.NewResponseController(r.ResponseWriter).Hijack()
}

// Unwrap returns the underlying response writer. http.ResponseController calls it.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}
