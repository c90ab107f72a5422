// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/net/http2"

	"keelson.dev/api/clock"
)

// Configure has server speak HTTP/2 on connections whose answers can be taken from it: their
// requests find them by FromContext. Connections that are not over a Socket are served as
// by any server. It is called before server serves; c tells when what was left unread has to be looked at.
//
// server.WriteTimeout bounds each answer, as in any server. It also bounds how long a client may
// read none of the data sent on its connection: then the connection is closed, even if the
// deadlines of its answers were removed.
//
// It takes golang.org/x/net's server, since that of net/http serves HTTP/2 over TLS on nothing
// but a *tls.Conn.
func Configure(server *http.Server, c clock.Clock) error {
	h2 := &http2.Server{}
	if err := http2.ConfigureServer(server, h2); err != nil {
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	shared := newShared(c, server.WriteTimeout)
	server.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, conn *tls.Conn, h http.Handler) {
		opts := &http2.ServeConnOpts{Context: baseContext(h), Handler: h, BaseConfig: server}
		var c net.Conn = conn
		if below, ok := conn.NetConn().(interface{ Lowest() *Socket }); ok {
			if s := shared.over(conn, below.Lowest()); s != nil {
				c, opts.Context = s, context.WithValue(opts.Context, connKey{}, s)
			}
		}
		h2.ServeConn(c, opts)
	}
	return nil
}

// baseContext is the context of a connection, which net/http hands down in the handler.
func baseContext(h http.Handler) context.Context {
	if b, ok := h.(interface{ BaseContext() context.Context }); ok {
		return b.BaseContext()
	}
	return context.Background()
}

type connKey struct{}

// FromContext returns the connection of a request, or nil.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}
