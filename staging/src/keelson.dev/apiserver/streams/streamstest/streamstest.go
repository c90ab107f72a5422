// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package streamstest serves tests of answers that are taken from the HTTP server.
package streamstest

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/streams"
)

// sendBuffer is what the kernel holds of a connection's answers, in bytes: little, so that
// whoever reads nothing is soon waited for.
const sendBuffer = 64 << 10

type sockets struct{ net.Listener }

func (l sockets) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).SetWriteBuffer(sendBuffer); err != nil {
		return nil, err
	}
	return streams.NewSocket(conn), nil
}

// Serve serves h by HTTP/2 over TLS until the test ends, and returns the address. The
// certificate is the server's own word; what the server logs is lost.
func Serve(t testing.TB, h http.Handler) (address string) {
	t.Helper()
	return ServeFor(t, h, 0)
}

// ServeFor is like Serve, but limits how long clients may read nothing; 0 means no limit.
func ServeFor(t testing.TB, h http.Handler, limit time.Duration) (address string) {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, WriteTimeout: limit, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}}
	if err := streams.Configure(server, clock.Real()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(tls.NewListener(sockets{l}, server.TLSConfig)) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}
