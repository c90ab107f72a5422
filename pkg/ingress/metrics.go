// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type proxyMetrics struct {
	requests *prometheus.CounterVec
	failures prometheus.Counter
}

func newProxyMetrics(r prometheus.Registerer) proxyMetrics {
	m := proxyMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keelson_ingress_requests_total", Help: "Requests answered, by the class of the answer's code.",
		}, []string{"code"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keelson_ingress_backend_failures_total", Help: "Requests that no endpoint answered.",
		}),
	}
	r.MustRegister(m.requests, m.failures)
	return m
}

// class is a code as metrics count it.
func class(code int) string { return strconv.Itoa(code/100) + "xx" }

// recorder keeps the code of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader keeps the last code: informational ones come before it.
func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Write implies the code of success, as everywhere.
func (r *recorder) Write(b []byte) (int, error) {
	if r.code < http.StatusOK {
		r.code = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets connections be flushed and taken over.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
