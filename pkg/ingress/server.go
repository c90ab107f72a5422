// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
)

const (
	maxHeaderBytes = 16 << 10
	streams        = 100       // maximum number of concurrent HTTP/2 streams of a connection
	frameBytes     = 16 << 10  // maximum size of a received HTTP/2 frame in bytes
	receiveWindow  = 256 << 10 // how many bytes a client may send before the endpoint has read them
)

// connectionKey is the context key with which a request's connection is stored.
type connectionKey struct{}

// Server returns an http.Server that serves the proxy on one listener.
func (p *Proxy) Server() *http.Server {
	return &http.Server{
		Handler: p, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: p.limits.Header, IdleTimeout: p.limits.Idle,
		ErrorLog:  slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.Certificate},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes,
			MaxReceiveBufferPerConnection: receiveWindow, MaxReceiveBufferPerStream: receiveWindow,
			// Pings detect a client that is no longer reachable. Write timeouts detect a client
			// that does not read.
			SendPingTimeout: p.limits.Stall, PingTimeout: p.limits.Stall, WriteByteTimeout: 4 * p.limits.Stall,
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if secure, ok := conn.(*tls.Conn); ok {
				conn = secure.NetConn()
			}
			return context.WithValue(ctx, connectionKey{}, conn)
		},
	}
}

// Listener returns l with the proxy's limits on connections.
func (p *Proxy) Listener(l net.Listener) net.Listener { return &listener{l, p} }
