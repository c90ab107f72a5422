// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"keelson.dev/apiserver/http2server/http2test"
)

// pattern returns n bytes of a fixed text, beginning at an offset (the argument from). Each byte
// depends on its offset, so that lost or repeated bytes are detected.
func pattern(from, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		at := from + i
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	return b
}

// exchange is a request, and the handler that answers it.
type exchange struct {
	method  string
	server  bool // the request is for the server itself (the path is "*")
	header  http.Header
	body    string
	trailer http.Header
	handler http.HandlerFunc
}

// exchanges lists requests to which net/http and this package must respond in the same way.
var exchanges = map[string]exchange{
	"no answer": {handler: func(http.ResponseWriter, *http.Request) {}},
	"small":     {handler: write("hello")},
	"4 KiB":     {handler: write(strings.Repeat("a", 4096))},
	"over 4 KB": {handler: write(strings.Repeat("a", 4097))},
	"large":     {handler: write(string(pattern(0, 3<<20)))},
	"pieces": {handler: func(w http.ResponseWriter, _ *http.Request) {
		for i := range 100 {
			fmt.Fprint(w, i, strings.Repeat("b", i*10))
		}
	}},
	"flushed": {handler: func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "piece")
			w.(http.Flusher).Flush()
		}
	}},
	"head":       {method: "HEAD", handler: write("hello")},
	"large head": {method: "HEAD", handler: write(strings.Repeat("a", 100_000))},
	"empty head": {method: "HEAD", handler: func(http.ResponseWriter, *http.Request) {}},
	"echo": {method: "POST", body: string(pattern(7, 1<<20)), handler: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}},
	"body not read": {method: "POST", body: strings.Repeat("a", 100_000), handler: write("no")},
	"no content":    {handler: status(http.StatusNoContent)},
	"not modified":  {handler: status(http.StatusNotModified)},
	"not found":     {handler: http.NotFound},
	"redirect": {
		handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/there", http.StatusFound) },
	},
	"no body allowed": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	}},
	"length": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		_, _ = io.WriteString(w, "abc")
	}},
	"impossible length": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "x")
		_, _ = io.WriteString(w, "abc")
	}},
	"header set late": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X"] = []string{"1", "2"}
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		w.Header().Set("X", "3")
	}},
	"html":    {handler: write("<!DOCTYPE html>")},
	"encoded": {handler: set("Content-Encoding", "br", "abc")},
	"no type": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "abc")
	}},
	"invalid header": {handler: set("X", "a\nb", "abc")},
	"trailers": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A, b, Content-Length")
		w.Header().Set("A", "before")
		_, _ = io.WriteString(w, "abc")
		w.Header().Set("A", "after")
		w.Header().Set("B", "b")
		w.Header().Set(http.TrailerPrefix+"C", "c")
	}},
	"trailers and no body": {
		handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(http.TrailerPrefix+"C", "c") },
	},
	"trailer that is not set": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "A")
		_, _ = io.WriteString(w, "abc")
	}},
	"request's trailers": {method: "POST", body: "abc", trailer: http.Header{"T": {"t"}, "U": {"u"}}, handler: func(
		w http.ResponseWriter, r *http.Request,
	) {
		fmt.Fprintln(w, len(r.Trailer))
		_, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, r.Trailer, err)
	}},
	"request": {method: "PATCH", body: "abc", header: http.Header{
		"A": {"1", "2"}, "Cookie": {"a=b; c=d"}, "Te": {"trailers"},
	}, handler: func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("User-Agent")
		fmt.Fprintln(
			w, r.Method, r.URL, r.RequestURI, r.Proto, r.ProtoMajor, r.ContentLength, r.TLS.NegotiatedProtocol, r.Header,
			len(r.Host) > 0,
		)
		_, server := r.Context().Value(http.ServerContextKey).(*http.Server)
		fmt.Fprintln(
			w, server, r.Context().Value(http.LocalAddrContextKey) != nil, strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"),
		)
	}},
	"options of the server": {method: "OPTIONS", server: true, handler: write("no")},
	"early hints": {handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "abc")
	}},
	"expect": {method: "POST", body: "abc", header: http.Header{"Expect": {"100-continue"}}, handler: func(
		w http.ResponseWriter, r *http.Request,
	) {
		_, ok := r.Header["Expect"]
		b, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, ok, string(b), err)
	}},
	"expected, not read": {method: "POST", body: "abc", header: http.Header{"Expect": {"100-continue"}},
		handler: status(http.StatusForbidden)},
	"closing": {handler: set("Connection", "close", "abc")},
	"panic":   {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	"panic in the middle": {handler: func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "abc")
		w.(http.Flusher).Flush()
		panic("bad")
	}},
}

func write(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func set(key, value, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(key, value)
		_, _ = io.WriteString(w, body)
	}
}

// client returns a client with a connection of its own.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{
		ForceAttemptHTTP2: true, DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	} //nolint:gosec // the server is the test's
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// do sends the request and returns everything that a client sees of the response.
func (e exchange) do(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	var seen strings.Builder
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(
		code int, header textproto.MIMEHeader,
	) error {
		fmt.Fprintln(&seen, code, header)
		return nil
	}})
	method := e.method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if e.body != "" {
		body = strings.NewReader(e.body)
	}
	r, err := http.NewRequestWithContext(ctx, method, url+"/a/b?c=d", body)
	if err != nil {
		t.Fatal(err)
	}
	if e.server {
		r.URL.Opaque, r.URL.RawQuery = "*", ""
	}
	for key, values := range e.header {
		r.Header[key] = values
	}
	r.Trailer = e.trailer
	resp, err := c.Do(r)
	if err != nil {
		return fmt.Sprint(&seen, strings.Contains(err.Error(), "INTERNAL_ERROR"))
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		err = errors.New("not the whole body")
	}
	if resp.Header.Get("Date") == "" {
		t.Error("the answer has no date")
	}
	resp.Header.Del("Date")
	fmt.Fprintln(&seen, resp.Proto, resp.StatusCode, resp.ContentLength, len(got), err)
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		for _, key := range slices.Sorted(maps.Keys(h)) {
			fmt.Fprintln(&seen, key, h[key])
		}
	}
	return seen.String() + string(got)
}

// TestLikeNetHTTP checks that this package responds to each of exchanges as net/http does.
func TestLikeNetHTTP(t *testing.T) {
	for name, e := range exchanges {
		t.Run(name, func(t *testing.T) {
			reference := httptest.NewUnstartedServer(e.handler)
			reference.EnableHTTP2 = true
			reference.Config.ErrorLog = log.New(io.Discard, "", 0)
			reference.StartTLS()
			defer reference.Close()
			want := e.do(t, client(t), reference.URL)
			own := client(t)
			url := "https://" + http2test.Serve(t, e.handler)
			for range 2 { // the connection must stay usable after each exchange
				if got := e.do(t, own, url); got != want {
					t.Errorf("got %.500s\nwant %.500s", got, want)
				}
			}
		})
	}
}

// TestTogether reads many responses at the same time over one connection.
func TestTogether(t *testing.T) {
	url := "https://" + http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscan(r.URL.Path[1:], &n)
		for at := 0; at < n; {
			size := min(n-at, 1+at%20_000)
			if _, err := w.Write(pattern(at, size)); err != nil {
				t.Error(err)
				return
			}
			if at += size; at%3 == 0 {
				w.(http.Flusher).Flush()
			}
		}
	}))
	c := client(t)
	done := make(chan error)
	const clients, requests = 8, 30
	for i := range clients {
		go func() {
			for n := range requests {
				size := n * 7919 * (i + 1) % 300_000
				resp, err := c.Get(fmt.Sprint(url, "/", size))
				if err != nil {
					done <- err
					return
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || !bytes.Equal(b, pattern(0, size)) {
					done <- fmt.Errorf("%d bytes of %d: %w", len(b), size, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestFullDuplex has a handler that responds to each line of the body before it reads the next one.
func TestFullDuplex(t *testing.T) {
	url := "https://" + http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		_ = control.Flush()
		buf := make([]byte, 10)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = control.Flush()
			if err != nil {
				return
			}
		}
	}))
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, word := range []string{"one", "two", "three"} {
		_, _ = io.WriteString(send, word)
		got := make([]byte, len(word))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != word {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	_ = send.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v", rest, err)
	}
}

// TestContextEnds checks that the context of a handler's request ends when the client cancels the
// request.
func TestContextEnds(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	url := "https://" + http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gone := w.(http.CloseNotifier).CloseNotify() //nolint:staticcheck // Kubernetes' wrappers need it
		close(begun)
		<-r.Context().Done()
		<-gone
		if _, err := w.Write(make([]byte, 100_000)); err == nil {
			t.Error("a write succeeds after the client has gone")
		}
		close(ended)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-begun
		cancel()
	}()
	if resp, err := client(t).Do(r); err == nil {
		_ = resp.Body.Close()
		t.Error("there was an answer")
	}
	<-ended
}
