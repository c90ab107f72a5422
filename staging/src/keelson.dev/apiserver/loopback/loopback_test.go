// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"keelson.dev/apiserver/loopback"
)

func TestStream(t *testing.T) {
	next, ended := make(chan string), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("X", "y")
		w.(http.Flusher).Flush()
		for {
			select {
			case s := <-next:
				_, _ = io.WriteString(w, s+"\n")
			case <-r.Context().Done():
				return
			}
		}
	})
	client := http.Client{Transport: loopback.RoundTripper{Handler: handler}}
	resp, err := client.Get("http://server/watch")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("X") != "y" || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, header %v", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"one", "two"} {
		next <- want
		if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended // closing the body ends the handler
}

func TestBodies(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.Method + " " + r.URL.RequestURI() + " " + string(b)))
	})
	client := http.Client{Transport: loopback.RoundTripper{Handler: handler}}
	resp, err := client.Post("http://server/a?b=c", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "POST /a?b=c hello" || resp.StatusCode != http.StatusTeapot {
		t.Errorf("got %d %q, %v", resp.StatusCode, b, err)
	}
}

func TestPanic(t *testing.T) {
	client := http.Client{
		Transport: loopback.RoundTripper{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("x") })}}
	resp, err := client.Get("http://server/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil || resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("status %d, error %v", resp.StatusCode, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := (loopback.RoundTripper{Handler: handler}).RoundTrip(req); err == nil {
		_ = resp.Body.Close()
		// The handler may return before RoundTrip notices the cancellation, so a response is
		// possible too.
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
}
