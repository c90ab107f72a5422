// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/daemon/scrape"
)

// ResultsPath is the path that serves the metrics of check results.
const ResultsPath = "/metrics/slis"

// Results are metrics of the results of checks, with Kubernetes' names. They are meant for service
// level indicators. They are safe for concurrent use.
type Results struct {
	last  *prometheus.GaugeVec
	total *prometheus.CounterVec
}

// NewResults returns Results without any results.
func NewResults() *Results {
	return &Results{
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
		}, []string{"name", "status", "type"}),
	}
}

// Watch returns the checks, changed so that their results are counted under kind, such as "livez".
func (m *Results) Watch(kind string, checks []Check) []Check {
	watched := slices.Clone(checks)
	for i, c := range checks {
		watched[i].Run = func(ctx context.Context) error {
			err := c.Run(ctx)
			value, status := 1.0, "success"
			if err != nil {
				value, status = 0, "error"
			}
			m.last.WithLabelValues(c.Name, kind).Set(value)
			m.total.WithLabelValues(c.Name, status, kind).Inc()
			return err
		}
	}
	return watched
}

// Handler serves the metrics. A DELETE request resets them.
func (m *Results) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.last, m.total)
	serve := scrape.Handler(registry)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			m.last.Reset()
			m.total.Reset()
			_, _ = io.WriteString(w, "metrics reset\n")
			return
		}
		serve.ServeHTTP(w, r)
	})
}
