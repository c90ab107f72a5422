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
	streams        = 100       // of a connection, at once
	frameBytes     = 16 << 10  // the largest frame that is read
	receiveWindow  = 256 << 10 // what a client may send ahead of the endpoint
)

// connectionKey finds the connection of a request in its context.
type connectionKey struct{}

// Server returns a server of the proxy's, for one listener.
func (p *Proxy) Server() *http.Server {
	return &http.Server{
		Handler: p, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: p.limits.Header, IdleTimeout: p.limits.Idle,
		ErrorLog:  slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.Certificate},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReadFrameSize: frameBytes,
			MaxReceiveBufferPerConnection: receiveWindow, MaxReceiveBufferPerStream: receiveWindow,
			// A peer that is gone is found by pings, one that takes nothing by its writes.
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
