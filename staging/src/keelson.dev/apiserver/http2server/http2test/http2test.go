// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package http2test serves HTTP/2 in tests, and has a client that sends and receives single frames.
package http2test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/http2server"
)

// sendBuffer is the size in bytes of the kernel's output buffer of a connection. It is small, so
// that a client that reads nothing soon blocks the server.
const sendBuffer = 64 << 10

// buffered is a TCP connection or a connection of a Unix socket.
type buffered interface {
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

// listener returns connections after their handshake, so that short timeouts that a test sets on
// its server do not apply to the handshake.
type listener struct {
	net.Listener
	config *tls.Config
}

func (l listener) Accept() (net.Conn, error) {
	below, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := below.(buffered).SetWriteBuffer(sendBuffer); err != nil {
		return nil, err
	}
	conn := tls.Server(below, l.config)
	_ = conn.Handshake() // a later call on conn returns the error again
	return conn, nil
}

// Certificate returns a self-signed certificate.
func Certificate(t testing.TB, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Unix(1<<35, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// network returns the network of an address that Serve returns.
func network(address string) string {
	if filepath.IsAbs(address) {
		return "unix"
	}
	return "tcp"
}

// Serve serves h until the test ends, and returns the address. The certificate is self-signed. The
// options change the server before it starts. If one sets Addr to an absolute path, the server
// listens on a Unix socket.
func Serve(t testing.TB, h http.Handler, options ...func(*http.Server)) (address string) {
	t.Helper()
	address, _ = Start(t, h, options...)
	return address
}

// Start is like Serve, but returns the server as well as its address.
func Start(t testing.TB, h http.Handler, options ...func(*http.Server)) (address string, server *http.Server) {
	t.Helper()
	server = &http.Server{
		Addr: "127.0.0.1:0", Handler: h, ErrorLog: log.New(io.Discard, "", 0), HTTP2: &http.HTTP2Config{},
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{Certificate(t, "127.0.0.1")}},
	}
	for _, option := range options {
		option(server)
	}
	if err := http2server.Configure(server, clock.Real()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen(network(server.Addr), server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener{l, server.TLSConfig}) // runs until the server is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String(), server
}
