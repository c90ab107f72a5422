// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scrape_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"keelson.dev/keelson/pkg/daemon/scrape"
)

const (
	text     = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
	protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; " +
		"escaping=underscores"
)

// registry returns a registry with n histograms, whose values never change.
func registry(n int) *prometheus.Registry {
	r := prometheus.NewRegistry()
	for i := range n {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: fmt.Sprintf("request_duration_%d_seconds", i), Help: "Duration of requests.",
		})
		h.Observe(float64(i) / 10)
		r.MustRegister(h)
	}
	return r
}

func get(t *testing.T, h http.Handler, accept, encoding string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	for name, value := range map[string]string{"Accept": accept, "Accept-Encoding": encoding} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// body returns the body of an answer, decompressed if it is compressed.
func body(t *testing.T, w *httptest.ResponseRecorder) []byte {
	t.Helper()
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w.Body.Bytes()
	}
	r, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNegotiation checks which answers are compressed, and that compression does not change the
// text. The answers for the large registry have several blocks.
func TestNegotiation(t *testing.T) {
	const prometheus3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
		"text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
	small, large := registry(1), registry(500)
	for name, test := range map[string]struct {
		from             prometheus.Gatherer
		accept, encoding string
		gzip             bool
		contentType      string
	}{
		"no header":         {large, "", "", false, text},
		"gzip":              {large, "", "gzip", true, text},
		"gzip among others": {large, "", "br, zstd, gzip;q=0.5", true, text},
		"gzip refused":      {large, "", "gzip;q=0", false, text},
		"identity":          {large, "", "identity", false, text},
		"only zstd":         {large, "", "zstd", false, text},
		"headers of Prometheus": {large, prometheus3, "gzip", true,
			strings.Replace(text, "underscores", "allow-utf-8", 1)},
		"protobuf":                  {large, protobuf, "gzip", true, protobuf},
		"protobuf, not compressed":  {large, protobuf, "", false, protobuf},
		"less than 1 KiB":           {small, "", "gzip", false, text},
		"less than 1 KiB, protobuf": {small, protobuf, "gzip", false, protobuf},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(t, scrape.Handler(test.from), test.accept, test.encoding)
			if got := w.Header().Get("Content-Encoding") == "gzip"; got != test.gzip {
				t.Errorf("gzip: %v, want %v", got, test.gzip)
			}
			if got := w.Header().Get("Content-Type"); got != test.contentType {
				t.Errorf("Content-Type %q, want %q", got, test.contentType)
			}
			vary := w.Header().Values("Vary")
			if slices.Sort(vary); !slices.Equal(vary, []string{"Accept", "Accept-Encoding"}) {
				t.Errorf("Vary %q", vary)
			}
			compressed := w.Body.Len()
			got, want := body(t, w), get(t, scrape.Handler(test.from), test.accept, "").Body.Bytes()
			if len(want) == 0 || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, want %d other bytes", len(got), len(want))
			}
			if test.gzip && compressed > len(want)/10 {
				t.Errorf("%d bytes were compressed only to %d", len(want), compressed)
			}
		})
	}
}

// TestErrors checks the answers if metrics cannot be gathered.
func TestErrors(t *testing.T) {
	const reason = "no metrics of disks"
	some := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := registry(100).Gather()
		return families, errors.Join(err, errors.New(reason))
	})
	none := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New(reason) })
	for name, test := range map[string]struct {
		handler http.Handler
		code    int
		want    string
	}{
		"all or nothing":        {scrape.Handler(some), http.StatusInternalServerError, reason},
		"partial":               {scrape.PartialHandler(some), http.StatusOK, "request_duration_0_seconds_sum 0"},
		"partial, with nothing": {scrape.PartialHandler(none), http.StatusInternalServerError, reason},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(t, test.handler, "", "gzip")
			if got := string(body(t, w)); w.Code != test.code || !strings.Contains(got, test.want) {
				t.Errorf("%d: %s", w.Code, got)
			}
		})
	}
}

// TestKeepsLittle checks that a process keeps little memory for compression between scrapes. Four
// scrapes at the same time need four writers, which their pool keeps until the second garbage
// collection. Four writers of the standard library would have 3.2 MB.
func TestKeepsLittle(t *testing.T) {
	h := scrape.Handler(registry(200))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // only the test collects garbage
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	get(t, h, "", "") // what scrapes keep without compression
	before := live()
	// Each scrape waits for the others before it sends compressed data, so that no two of them use
	// the same writer.
	const scrapes = 4
	began, all, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range scrapes {
		go func() {
			defer func() { done <- struct{}{} }()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
			r.Header.Set("Accept-Encoding", "gzip")
			h.ServeHTTP(&waiter{header: http.Header{}, began: began, all: all}, r)
		}()
	}
	for range scrapes {
		<-began
	}
	close(all)
	for range scrapes {
		<-done
	}
	if kept := live() - before; kept > 3<<19 {
		t.Errorf("%d bytes are kept after one garbage collection", kept)
	}
	if kept := live() - before; kept > 200<<10 {
		t.Errorf("%d bytes are kept after two garbage collections", kept)
	}
}

// waiter is an http.ResponseWriter whose second Write waits. The first one gets only the header of gzip.
type waiter struct {
	header     http.Header
	began, all chan struct{}
	writes     int
}

func (w *waiter) Header() http.Header { return w.header }

func (w *waiter) WriteHeader(int) {}

func (w *waiter) Write(b []byte) (int, error) {
	if w.writes++; w.writes == 2 {
		w.began <- struct{}{}
		<-w.all
	}
	return len(b), nil
}
