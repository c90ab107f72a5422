// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/proxy/config"
)

// TestPages checks the pages of the metrics server that describe the process and list the paths.
func TestPages(t *testing.T) {
	cfg, err := config.Parse([]string{"--hostname-override=n1", "--masquerade-all", "--profiling"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	h := metricsHandler(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		if w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		return w.Body.String()
	}
	get("/healthz")
	if slis := get("/metrics/slis"); !strings.Contains(slis,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1`) {
		t.Errorf("health checks are not counted: %s", slis)
	}
	flags := get("/flagz")
	// Match with regular expressions, because the zpages library varies the separator between name
	// and value so that programs do not parse the page.
	for _, want := range []string{"kube-proxy flagz", "\nhostname-override[:= ]+n1\n", "\nmasquerade-all[:= ]+true\n"} {
		if !regexp.MustCompile(want).MatchString(flags) {
			t.Errorf("flagz has no %q: %s", want, flags)
		}
	}
	status := get("/statusz")
	_, line, _ := strings.Cut(status, "Paths")
	paths := strings.Fields(strings.TrimLeft(line, ":= "))
	if !strings.Contains(status, "kube-proxy statusz") || len(paths) != 7 {
		t.Errorf("statusz: %s", status)
	}
	for _, path := range paths {
		if path != "/debug" { // /debug is only the common root of several paths
			get(path)
		}
	}
}
