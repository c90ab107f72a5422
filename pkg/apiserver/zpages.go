// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"keelson.dev/keelson/pkg/daemon/zpages"
	"keelson.dev/keelson/pkg/health"
)

// componentName is what the server calls itself on its pages.
const componentName = "apiserver"

// Handle registers h at path; it lets libraries install their pages.
func (m *mux) Handle(path string, h http.Handler) { m.handle(path, h) }

// addZPages serves the pages that tell people what the server is: its flags and
// its state.
func (m *mux) addZPages(values map[string]string) {
	zpages.Install(m, componentName, values, slices.Collect(maps.Keys(m.exact))...)
}

// checkMetrics count what health checks found, for service level indicators.
type checkMetrics struct {
	last  *prometheus.GaugeVec
	total *prometheus.CounterVec
}

func newCheckMetrics() *checkMetrics {
	return &checkMetrics{
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "[STABLE] This metric records the result of a single healthcheck.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "[STABLE] This metric records the results of all healthcheck.",
		}, []string{"name", "status", "type"}),
	}
}

// watch returns checks whose results are counted as those of a kind ("livez").
func (m *checkMetrics) watch(kind string, checks []health.Check) []health.Check {
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

// handler answers with the metrics, and forgets them at DELETE.
func (m *checkMetrics) handler(started time.Time) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{m.last, m.total} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	serve := sinceStart(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), started)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			m.last.Reset()
			m.total.Reset()
			_, _ = io.WriteString(w, "metrics reset\n")
			return
		}
		serve.ServeHTTP(w, r)
	}), nil
}

// sinceStart says in a header since when metrics are counted.
func sinceStart(h http.Handler, started time.Time) http.Handler {
	value := strconv.FormatInt(started.Unix(), 10)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Process-Start-Time-Unix", value)
		h.ServeHTTP(w, r)
	})
}
