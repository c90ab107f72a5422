// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// says starts a server that answers each request with the raw bytes of text and closes the
// connection. If text is empty it sends nothing and waits until the client disconnects.
func says(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if _, err := conn.Read(make([]byte, 4<<10)); err != nil {
					return
				}
				if text == "" {
					_, _ = io.Copy(io.Discard, conn)
				}
				_, _ = io.WriteString(conn, strings.TrimPrefix(text, "nothing"))
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestOnce checks how the transport handles unusual responses.
func TestOnce(t *testing.T) {
	for name, c := range map[string]struct {
		says, body, err string
		status          int
	}{
		"complete response": {says: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nyes", status: 200, body: "ye"},
		"no content length": {says: "HTTP/1.0 503 no\r\n\r\nyes", status: 503, body: "yes"},
		"chunked": {
			says:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nye\r\n1\r\ns\r\n0\r\n\r\n",
			status: 200, body: "yes"},
		"1xx before the response": {
			says: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", status: 204},
		"endless 1xx":       {says: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10), err: "too many 1xx"},
		"nothing":           {says: "nothing", err: "EOF"},
		"incomplete header": {says: "HTTP/1.1 200 OK\r\nContent-Le: 1\r\n", err: "unexpected EOF"},
		"not HTTP":          {says: "SSH-2.0-x\r\n", err: "malformed HTTP response"},
		"endless header":    {says: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxAnswer), err: "EOF"},
	} {
		resp, err := (&http.Client{Transport: once{}}).Get(says(t, c.says))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s: %d %q, %v", name, resp.StatusCode, body, err)
		}
		_ = resp.Body.Close()
	}
}

// TestRequestEndsWithContext checks that a request returns when its context ends, both before and
// during the response.
func TestRequestEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, says(t, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&http.Client{Transport: once{}}).Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // returns when the client disconnects
	}))
	defer slow.Close()
	ctx, cancel = context.WithCancel(t.Context())
	if req, err = http.NewRequestWithContext(ctx, http.MethodGet, slow.URL, nil); err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: once{}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an answer without end was read to its end")
	}
	_ = resp.Body.Close()
}

// BenchmarkGet measures an HTTP probe, including the server.
func BenchmarkGet(b *testing.B) {
	for name, start := range map[string]func(*httptest.Server){"http": (*httptest.Server).Start,
		"https": (*httptest.Server).StartTLS} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "ok")
			}))
			start(s)
			defer s.Close()
			host, _, err := net.SplitHostPort(s.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			c := &v1.Container{Ports: []v1.ContainerPort{
				{Name: "web", ContainerPort: int32(s.Listener.Addr().(*net.TCPAddr).Port)}}}
			g := &v1.HTTPGetAction{Scheme: v1.URIScheme(strings.ToUpper(name))}
			g.Port = intstr.FromString("web")
			for b.Loop() {
				if status, _, err := get(b.Context(), Target{Container: c, IP: host}, g); err != nil || status != http.StatusOK {
					b.Fatal(status, err)
				}
			}
		})
	}
}
