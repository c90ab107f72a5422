// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricstest lets tests read metrics in the way that Prometheus reads them.
package metricstest

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/daemon/scrape"
)

// Scrape returns the values in the response of a /metrics handler. The keys are the names with
// their labels, exactly as the response contains them.
func Scrape(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	scrape.Handler(g).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSpace(line)
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		out[line[:cut]] = v
	}
	return out
}

// Expect compares series with their wanted values. A wanted value of -1 means that the series must
// not exist.
func Expect(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		v, there := got[name]
		if !there {
			v = -1
		}
		if v != want[name] {
			t.Errorf("%s is %v, want %v", name, v, want[name])
		}
	}
}
