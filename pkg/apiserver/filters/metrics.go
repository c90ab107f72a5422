// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Metrics are the metrics of filters.
type Metrics struct {
	rejected   *prometheus.CounterVec
	terminated *prometheus.CounterVec
	aborted    *prometheus.CounterVec
	durations  map[filter]prometheus.Observer
}

// filter is the name of a filter whose duration is measured.
type filter string

const (
	authenticationFilter filter = "authentication"
	authorizationFilter  filter = "authorization"
	fairnessFilter       filter = "priorityandfairness"
)

// NewMetrics registers the metrics with r. If r is nil, they are not exported.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keelson_apiserver_dropped_requests_total",
			Help: "Requests refused because too many were in flight.",
		}, []string{"request_kind"}),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total",
			Help: "[ALPHA] Number of requests which apiserver terminated in self-defense.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		aborted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_aborts_total",
			Help: "[ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, " +
				"version, verb, resource, subresource and scope",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope"}),
		durations: map[filter]prometheus.Observer{},
	}
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_request_filter_duration_seconds",
		Help:    "[ALPHA] Request filter latency distribution in seconds, for each filter type",
		Buckets: []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 5, 10, 15, 30},
	}, []string{"filter"})
	for _, f := range []filter{authenticationFilter, authorizationFilter, fairnessFilter} {
		m.durations[f] = durations.WithLabelValues(string(f))
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.rejected), r.Register(m.terminated), r.Register(m.aborted), r.Register(durations))
}

// drop counts a request that is rejected because too many requests are in flight.
func (m *Metrics) drop(kind string, info *request.RequestInfo) {
	if m != nil {
		m.rejected.WithLabelValues(kind).Inc()
		m.terminate(info, http.StatusTooManyRequests)
	}
}

// terminate counts a request that is rejected because of overload or has exceeded its deadline. The
// labels for the resource stay empty. Clients can send any names, and the filters cannot check
// whether such a resource exists, so these labels could have any number of values.
func (m *Metrics) terminate(info *request.RequestInfo, code int) {
	if m == nil {
		return
	}
	verb, scope := verbAndScope(info)
	m.terminated.WithLabelValues(verb, "", "", "", "", scope, "apiserver", strconv.Itoa(code)).Inc()
}

// abort counts a request whose answer was broken off. The labels for the resource stay empty
// (see terminate).
func (m *Metrics) abort(r *http.Request, resolver request.RequestInfoResolver) {
	if m == nil {
		return
	}
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		info = &request.RequestInfo{}
	}
	verb, scope := verbAndScope(info)
	m.aborted.WithLabelValues(verb, "", "", "", "", scope).Inc()
}

// verbAndScope returns two labels of a request.
func verbAndScope(info *request.RequestInfo) (verb, scope string) {
	verb = "OTHER"
	switch info.Verb {
	case "create":
		verb = http.MethodPost
	case "update":
		verb = http.MethodPut
	case "get", "list", "watch", "patch", "delete", "deletecollection":
		verb = strings.ToUpper(info.Verb)
	}
	switch {
	case info.Name != "" || info.Verb == "create":
		scope = "resource"
	case info.Namespace != "":
		scope = "namespace"
	case info.IsResourceRequest:
		scope = "cluster"
	}
	return verb, scope
}

// begin returns the time at which a filter begins to handle a request.
func (c *Config) begin() time.Time {
	if c.Metrics == nil {
		return time.Time{}
	}
	return c.Clock.Now()
}

// end records how long a filter that began at start has taken. It is called when the filter passes
// the request on. As in Kubernetes, a request that the filter rejects does not count, unless
// authentication rejects it.
func (c *Config) end(f filter, start time.Time) {
	if c.Metrics != nil {
		c.Metrics.durations[f].Observe(c.Clock.Since(start).Seconds())
	}
}
