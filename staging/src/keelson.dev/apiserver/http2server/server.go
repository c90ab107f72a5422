// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"keelson.dev/api/clock"
)

const (
	defaultMaxStreams   = 250
	defaultMaxFrame     = 16 << 10
	defaultStreamBuffer = 256 << 10
	defaultConnBuffer   = 1 << 20
	defaultPingTimeout  = 15 * time.Second
)

// server has the state that the connections of one http.Server share.
type server struct {
	http    *http.Server
	clock   clock.Clock
	limits  http.HTTP2Config
	buffers sync.Pool // empty buffers of type *[]byte, for conn.out and response.held

	mu       sync.Mutex
	conns    map[*conn]struct{}
	draining bool // Shutdown has been called
}

// Configure makes hs serve HTTP/2 on TLS connections that negotiate "h2". It must be called before
// hs serves, and after the limits of hs have been set: HTTP2, MaxHeaderBytes, ReadTimeout,
// WriteTimeout, ReadHeaderTimeout and IdleTimeout.
func Configure(hs *http.Server, c clock.Clock) error {
	if hs.TLSConfig == nil {
		hs.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if err := checkCiphers(hs.TLSConfig); err != nil {
		return err
	}
	s := &server{http: hs, clock: c, conns: map[*conn]struct{}{}}
	s.buffers.New = func() any { return new([]byte) }
	if hs.HTTP2 != nil {
		s.limits = *hs.HTTP2
	}
	l := &s.limits
	l.MaxConcurrentStreams = cmp.Or(l.MaxConcurrentStreams, defaultMaxStreams)
	l.MaxReadFrameSize = cmp.Or(l.MaxReadFrameSize, defaultMaxFrame)
	l.MaxReceiveBufferPerStream = cmp.Or(l.MaxReceiveBufferPerStream, defaultStreamBuffer)
	l.PingTimeout = cmp.Or(l.PingTimeout, defaultPingTimeout)
	l.MaxReceiveBufferPerConnection = max(l.MaxReceiveBufferPerConnection, defaultWindow, defaultConnBuffer)
	if !slices.Contains(hs.TLSConfig.NextProtos, http2.NextProtoTLS) {
		hs.TLSConfig.NextProtos = append(hs.TLSConfig.NextProtos, http2.NextProtoTLS)
	}
	if hs.TLSNextProto == nil {
		hs.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	hs.TLSNextProto[http2.NextProtoTLS] = s.serve
	hs.RegisterOnShutdown(s.drain)
	return nil
}

// checkCiphers rejects a list of cipher suites that lacks the one that RFC 9113, section 9.2.2,
// requires servers to support.
func checkCiphers(c *tls.Config) error {
	if c.CipherSuites == nil || c.MinVersion >= tls.VersionTLS13 {
		return nil
	}
	if slices.Contains(c.CipherSuites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(c.CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		return nil
	}
	return errors.New("http2: TLSConfig.CipherSuites is missing an HTTP/2-required AES_128_GCM_SHA256 cipher " +
		"(need at least one of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)")
}

// serve serves a connection until it ends. net/http closes it afterwards.
func (s *server) serve(hs *http.Server, t *tls.Conn, h http.Handler) {
	base := context.Background()
	// The handler that net/http passes to TLSNextProto functions returns the connection's context.
	if b, ok := h.(interface{ BaseContext() context.Context }); ok {
		base = b.BaseContext()
	}
	base = context.WithValue(base, http.LocalAddrContextKey, t.LocalAddr())
	base = context.WithValue(base, http.ServerContextKey, hs)
	state := t.ConnectionState()
	c := newConn(s, t, t.NetConn(), &state, h, base)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	}()
	c.serve()
}

func (s *server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// drain sends GOAWAY on all connections, so that clients open no more streams. Each connection ends
// after its last stream.
func (s *server) drain() {
	s.mu.Lock()
	s.draining = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.goAway()
	}
}

// maxHeaderList returns the maximum size of a request's header list, counted as in RFC 9113,
// section 6.5.2.
func (s *server) maxHeaderList() uint32 {
	const perField, typicalFields = 32, 10
	size := min(cmp.Or(s.http.MaxHeaderBytes, http.DefaultMaxHeaderBytes), 1<<30)
	return uint32(size) + perField*typicalFields //nolint:gosec // bounded
}

// maxKept is the size in bytes of the largest buffer that is kept for reuse.
const maxKept = 2 * maxOut

func (s *server) buffer() *[]byte { return s.buffers.Get().(*[]byte) }

func (s *server) putBuffer(b *[]byte) {
	if cap(*b) <= maxKept {
		*b = (*b)[:0]
		s.buffers.Put(b)
	}
}

func (s *server) logf(format string, args ...any) {
	if s.http.ErrorLog != nil {
		s.http.ErrorLog.Printf(format, args...)
	}
}

// prefaceLimit returns how long a client may take to send its preface.
func (s *server) prefaceLimit() time.Duration {
	return cmp.Or(s.http.ReadHeaderTimeout, 10*time.Second)
}
