// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/http2server"
	"keelson.dev/apiserver/http2server/http2test"
)

// TestShutdown checks that on shutdown clients get GOAWAY, running requests are completed, later
// requests are not served, and then the connection ends.
func TestShutdown(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	address, server := http2test.Start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "done")
	}))
	c := http2test.Dial(t, address, 0)
	c.Get(1, "/")
	<-begun
	down := make(chan error)
	go func() { down <- server.Shutdown(t.Context()) }()
	left, ok := c.Until(http2test.Left(http2.ErrCodeNo)).(*http2.GoAwayFrame)
	if !ok || left.LastStreamID != 1 {
		t.Errorf("got %v", left)
	}
	c.Get(3, "/")
	close(release)
	f, ok := c.Until(func(f http2.Frame) bool { return f.Header().Type == http2.FrameData }).(*http2.DataFrame)
	if !ok || string(f.Data()) != "done" || f.StreamID != 1 {
		t.Errorf("got %v", f)
	}
	if f := c.Until(func(f http2.Frame) bool { return f.Header().StreamID == 3 }); f != nil {
		t.Errorf("got %v", f)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// TestConnectionClose checks that a response with "Connection: close" makes the server send GOAWAY.
func TestConnectionClose(t *testing.T) {
	address := http2test.Serve(
		t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }),
	)
	c := http2test.Dial(t, address, 0)
	c.Get(1, "/")
	if c.Until(http2test.Left(http2.ErrCodeNo)) == nil {
		t.Error("the server does not leave")
	}
	if f := c.Until(func(http2.Frame) bool { return false }); f != nil {
		t.Error("the connection stays open")
	}
}

// TestIdle checks that the server ends a connection without streams after IdleTimeout, but not a
// connection with a stream.
func TestIdle(t *testing.T) {
	ended := make(chan struct{})
	address := http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/long" {
			<-ended
		}
	}), func(s *http.Server) { s.IdleTimeout = limit })
	busy, idle := http2test.Dial(t, address, 0), http2test.Dial(t, address, 0)
	busy.Get(1, "/long")
	idle.Get(1, "/")
	if idle.Until(http2test.Left(http2.ErrCodeNo)) == nil {
		t.Error("the idle connection was not left")
	}
	busy.Get(3, "/")
	if busy.Until(http2test.Ended(3)) == nil {
		t.Error("the busy connection has ended")
	}
	close(ended)
	if busy.Until(http2test.Left(http2.ErrCodeNo)) == nil {
		t.Error("the connection was not left when it became idle")
	}
}

// TestClientCertificate checks that handlers see the client's certificate.
func TestClientCertificate(t *testing.T) {
	url := "https://" + http2test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}), func(s *http.Server) { s.TLSConfig.ClientAuth = tls.RequireAnyClientCert })
	c := client(t)
	c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{http2test.Certificate(t, "somebody")}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "somebody" {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestContexts checks that requests have the context that net/http makes for their connection.
func TestContexts(t *testing.T) {
	type key struct{}
	url := "https://" + http2test.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Context().Value(key{}) != "conn" {
			t.Error("the context is not the connection's")
		}
	}), func(s *http.Server) {
		s.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, "conn") }
	})
	resp, err := client(t).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestCiphers checks that cipher suites without the mandatory one are rejected.
func TestCiphers(t *testing.T) {
	for name, tc := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"none":    {nil, true},
		"default": {&tls.Config{MinVersion: tls.VersionTLS12}, true},
		"mandatory": {
			&tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}, true,
		},
		"missing": {
			&tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}},
			false,
		},
		"TLS 1.3": {
			&tls.Config{MinVersion: tls.VersionTLS13, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := http2server.Configure(&http.Server{TLSConfig: tc.config}, clock.Real()); (err == nil) != tc.ok {
				t.Error(err)
			}
		})
	}
}
