// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestTerminations checks that requests that are rejected or time out are counted, and that
// requests that succeed are not.
func TestTerminations(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Metrics: m, MaxReadsInFlight: 1, RequestTimeout: time.Hour}
	send := func(h http.Handler, url string) {
		r := httptest.NewRequest(http.MethodGet, url, http.NoBody)
		info, err := Resolver().NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithRequestInfo(r.Context(), info)))
	}
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	send(withDeadline(slow, cfg), "/api/v1/namespaces/a/pods?timeout=1ms")
	send(withDeadline(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), cfg), "/api/v1/pods")
	var full http.Handler
	full = withMaxInFlight(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		send(full, "/api/v1/nodes/n") // the outer request has the only slot
	}), cfg)
	send(full, "/api/v1/nodes")
	for labels, want := range map[[3]string]float64{
		{"LIST", "namespace", "504"}: 1, {"LIST", "cluster", "504"}: 0, {"GET", "resource", "429"}: 1,
	} {
		c := m.terminated.WithLabelValues(labels[0], "", "", "", "", labels[1], "apiserver", labels[2])
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%v is %v, want %v", labels, got, want)
		}
	}
	if got := testutil.ToFloat64(m.rejected.WithLabelValues("readOnly")); got != 1 {
		t.Errorf("%v requests were refused, want 1", got)
	}
}
