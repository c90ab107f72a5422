// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/health"
)

// TestResults checks that the results of checks are counted by path, and that excluded checks are
// not. A DELETE request must reset the counts.
func TestResults(t *testing.T) {
	results, gate := health.NewResults(), health.NewGate("caches", "empty")
	checks := []health.Check{health.Ping(), gate.Check()}
	do := func(h http.Handler, method, path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w.Body.String()
	}
	ready := health.Handler("/readyz", slog.New(slog.DiscardHandler), results.Watch("readyz", checks)...)
	live := health.Handler("/livez", slog.New(slog.DiscardHandler), results.Watch("livez", checks[:1])...)
	do(ready, http.MethodGet, "/readyz")
	gate.Open()
	do(ready, http.MethodGet, "/readyz?exclude=ping")
	do(live, http.MethodGet, "/livez/ping")
	got := do(results.Handler(), http.MethodGet, health.ResultsPath)
	for _, want := range []string{
		`kubernetes_healthcheck{name="caches",type="readyz"} 1`, `kubernetes_healthcheck{name="ping",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="caches",status="error",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="caches",status="success",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s:\n%s", want, got)
		}
	}
	if got := do(results.Handler(), http.MethodDelete, health.ResultsPath); got != "metrics reset\n" {
		t.Error(got)
	}
	if got := do(results.Handler(), http.MethodGet, health.ResultsPath); got != "" {
		t.Errorf("not forgotten: %s", got)
	}
}
