// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// failsOnce is a listener that has no file descriptor left for the first connection.
type failsOnce struct {
	net.Listener
	failed bool
}

type outOfFiles struct{ error }

func (outOfFiles) Timeout() bool   { return false }
func (outOfFiles) Temporary() bool { return true }

func (l *failsOnce) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, outOfFiles{errors.New("too many open files")}
	}
	return l.Listener.Accept()
}

// TestHandshaking: who says nothing keeps nobody waiting, and is cut in the end; who does
// not speak TLS is told so; an error that passes does not end the listener, and closing it
// ends all of it.
func TestHandshaking(t *testing.T) {
	certPEM, keyPEM, err := selfSigned(&config.Config{BindAddress: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	l := newHandshaking(&failsOnce{Listener: inner}, server.TLSConfig, 500*time.Millisecond)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	silent := dial()
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	answer, err := (&http.Client{Transport: transport}).Get("https://" + inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "HTTP/2.0" {
		t.Errorf("speaks %q, %v", body, err)
	}
	_ = answer.Body.Close()
	transport.CloseIdleConnections()

	plain := dial()
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(plain); err != nil || !strings.HasPrefix(string(said), "HTTP/1.0 400 Bad Request") {
		t.Errorf("without TLS: %q, %v", said, err)
	}
	if said, err := io.ReadAll(silent); err != nil || len(said) > 0 {
		t.Errorf("to who says nothing: %q, %v", said, err)
	}

	late := dial()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("served: %v", err)
	}
	if _, err := io.ReadAll(late); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("at the end: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted after the end: %v", err)
	}
}
