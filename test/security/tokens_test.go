// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"keelson.dev/apiserver/streams"
	"keelson.dev/apiserver/streams/streamstest"
)

// hookedWriter is a ResponseWriter that calls a function before the first write.
type hookedWriter struct {
	http.ResponseWriter
	before func()
}

func (w *hookedWriter) Write(b []byte) (int, error) {
	if w.before != nil {
		w.before()
		w.before = nil
	}
	return w.ResponseWriter.Write(b)
}

func (w *hookedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestTokenOfAnother checks that a tenant's short answers do not break the watches of other tenants on
// the same connection to the server. The server must not take them for the token by which it finds a
// new watch.
func TestTokenOfAnother(t *testing.T) {
	speak, spoken := make(chan struct{}), make(chan struct{})
	address := streamstest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		w.WriteHeader(http.StatusOK)
		if err := control.Flush(); err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/tenant" { // each possible byte, one at a time
			<-speak
			for b := range 256 {
				if _, err := w.Write([]byte{byte(b)}); err != nil {
					t.Error(err)
				}
				if err := control.Flush(); err != nil {
					t.Error(err)
				}
			}
			close(spoken)
			return
		}
		watch := &hookedWriter{w, func() { // the server is already looking for the token
			close(speak)
			<-spoken
		}}
		s, err := streams.FromContext(r.Context()).Take(r.Context(), watch)
		if s == nil {
			t.Errorf("the watch failed: %v", err)
			panic(http.ErrAbortHandler)
		}
		defer s.Release()
		if err := s.Send(r.Context(), []byte("event")); err != nil {
			t.Error(err)
		}
	}))
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is the test's
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	tenant, err := client.Get("https://" + address + "/tenant")
	check(t, err)
	defer tenant.Body.Close()
	watch, err := client.Get("https://" + address + "/watch")
	check(t, err)
	defer watch.Body.Close()
	if got, err := io.ReadAll(watch.Body); err != nil || string(got) != "event" {
		t.Errorf("the watch got %q: %v", got, err)
	}
	got, err := io.ReadAll(tenant.Body)
	check(t, err)
	for b := range 256 {
		if b >= len(got) || got[b] != byte(b) {
			t.Fatalf("the tenant got %d bytes; the byte at %d is not its own", len(got), b)
		}
	}
}
