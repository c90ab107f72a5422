// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Metrics are the metrics of filters.
type Metrics struct {
	rejected   *prometheus.CounterVec
	terminated *prometheus.CounterVec
}

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
	}
	if r == nil {
		return m, nil
	}
	return m, errors.Join(r.Register(m.rejected), r.Register(m.terminated))
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
	verb := "OTHER"
	switch info.Verb {
	case "create":
		verb = http.MethodPost
	case "update":
		verb = http.MethodPut
	case "get", "list", "watch", "patch", "delete", "deletecollection":
		verb = strings.ToUpper(info.Verb)
	}
	scope := ""
	switch {
	case info.Name != "" || info.Verb == "create":
		scope = "resource"
	case info.Namespace != "":
		scope = "namespace"
	case info.IsResourceRequest:
		scope = "cluster"
	}
	m.terminated.WithLabelValues(verb, "", "", "", "", scope, "apiserver", strconv.Itoa(code)).Inc()
}
