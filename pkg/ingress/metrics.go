// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type proxyMetrics struct {
	requests *prometheus.CounterVec
	failures prometheus.Counter
	refusals *prometheus.CounterVec
}

// refused counts a connection or request that was rejected because of a limit.
func (m *proxyMetrics) refused(limit string) { m.refusals.WithLabelValues(limit).Inc() }

func newProxyMetrics(r prometheus.Registerer) proxyMetrics {
	m := proxyMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keelson_ingress_requests_total",
			Help: "Number of answered requests, by the class of the status code, such as 2xx.",
		}, []string{"code"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keelson_ingress_backend_failures_total", Help: "Number of requests that no endpoint answered.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keelson_ingress_refused_total",
			Help: "Number of connections and requests that a limit has ended, by limit: connections, " +
				"client_connections, requests, client_requests, namespace_requests, slow_body, cancelled_requests.",
		}, []string{"limit"}),
	}
	r.MustRegister(m.requests, m.failures, m.refusals)
	return m
}

// class returns the value of the label for a status code, such as 2xx.
func class(code int) string { return strconv.Itoa(code/100) + "xx" }
