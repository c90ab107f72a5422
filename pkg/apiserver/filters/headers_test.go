// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRetryAfter checks that new requests get Retry-After while a server drains, and that health
// checks and metrics are still served.
func TestRetryAfter(t *testing.T) {
	n := NewInFlight()
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := withRetryAfter(ok, Config{RetryAfterShutdown: true, InFlight: n})
	code := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if again := w.Header().Get("Retry-After"); (w.Code == http.StatusTooManyRequests) != (again == "5") {
			t.Errorf("%s: %d, to be tried again after %q", path, w.Code, again)
		}
		return w.Code
	}
	if got := code("/api"); got != http.StatusOK {
		t.Errorf("before: %d", got)
	}
	if err := n.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if api, ready := code("/api"), code("/readyz"); api != http.StatusTooManyRequests || ready != http.StatusOK {
		t.Errorf("after: %d, /readyz %d", api, ready)
	}
}

// TestGoaway checks that HTTP/2 connections are closed with the configured probability.
func TestGoaway(t *testing.T) {
	next := 0.0
	h := withGoaway(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 0.02, func() float64 { return next })
	for name, tc := range map[string]struct {
		random float64
		major  int
		close  bool
	}{"chosen": {0.01, 2, true}, "not chosen": {0.02, 2, false}, "HTTP/1.1": {0.01, 1, false}} {
		next = tc.random
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.ProtoMajor = tc.major
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Connection") == "close"; got != tc.close {
			t.Errorf("%s: closed %v", name, got)
		}
	}
}
