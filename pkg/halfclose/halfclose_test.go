// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package halfclose_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/halfclose"
)

// responder fails the test if a proxy cannot reach the server.
type responder struct{ t *testing.T }

func (r responder) Error(_ http.ResponseWriter, _ *http.Request, err error) { r.t.Error(err) }

const last = "the last output and the exit code"

// server runs a server that upgrades each connection, reads a part of what the client sends, writes
// its output, and closes the connection. The unread data resets the connection.
func server(t *testing.T) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.CopyN(io.Discard, rw, 1<<20) // read only a part of what the client sends
		_, _ = io.WriteString(conn, last)
	}))
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestLastOutputIsDelivered uses a chain of two proxies, as of an API server and a kubelet. It
// checks that a client that is still sending receives everything that the server had sent before it
// closed the connection.
func TestLastOutputIsDelivered(t *testing.T) {
	at := server(t)
	for range 2 {
		to := at
		front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			transport := &http.Transport{DialContext: halfclose.Dial((&net.Dialer{}).DialContext)}
			if to.Scheme == "https" {
				transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
			}
			handler := proxy.NewUpgradeAwareHandler(to, transport, false, true, responder{t})
			handler.ServeHTTP(halfclose.Linger(w, clock.Real(), time.Minute), r)
		}))
		t.Cleanup(front.Close)
		next, err := url.Parse(front.URL)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	for range 20 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "x")
		conn, err := proxy.DialURL(t.Context(), at, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Write(conn); err != nil {
			t.Fatal(err)
		}
		answer := bufio.NewReader(conn)
		if _, err := http.ReadResponse(answer, r); err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.Copy(conn, io.LimitReader(endless{}, 64<<20))
		}()
		got, err := io.ReadAll(answer)
		if string(got) != last {
			t.Errorf("received %q, error %v", got, err)
		}
		conn.Close()
		<-sent
	}
}

// endless is a reader whose data does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestDialFails checks that the error of the inner dialer is returned.
func TestDialFails(t *testing.T) {
	dial := halfclose.Dial(func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF })
	if conn, err := dial(t.Context(), "tcp", "x"); conn != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, %v", conn, err)
	}
}

// TestSlowClient checks that a client that is still sending receives everything, even if it reads
// so slowly that this takes longer than the patience.
func TestSlowClient(t *testing.T) {
	const size = 4 << 20
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := halfclose.Linger(w, clock.Real(), 2*time.Second).(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = conn.Write(make([]byte, size))
		_ = conn.Close()
	}))
	defer s.Close()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.NetConn().(*net.TCPConn).SetReadBuffer(128 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, endless{})
	}()
	var received int64
	for err = nil; err == nil; {
		var n int64
		n, err = io.CopyN(io.Discard, conn, 32<<10)
		received += n
		time.Sleep(20 * time.Millisecond) // the client is slow
	}
	if received != size || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes of %d arrived, error %v", received, size, err)
	}
	_ = conn.Close()
	<-sent
}

// TestUnhijackedResponses checks that Linger does not change the answer of a handler that does not
// hijack the connection.
func TestUnhijackedResponses(t *testing.T) {
	w := httptest.NewRecorder()
	l := halfclose.Linger(w, clock.Real(), time.Minute)
	l.WriteHeader(http.StatusTeapot)
	_, _ = io.Copy(l, bytes.NewBufferString("body"))
	if err := http.NewResponseController(l).Flush(); err != nil || !w.Flushed {
		t.Errorf("flush: %v", err)
	}
	if w.Code != http.StatusTeapot || !strings.HasPrefix(w.Body.String(), "body") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// hijacked is an http.ResponseWriter whose Hijack returns conn.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

// tlsLike is a connection whose CloseWrite first waits until other writes have returned and then
// writes data itself, like that of a TLS connection.
type tlsLike struct {
	net.Conn
	turn chan struct{}
}

func (c tlsLike) Write(p []byte) (int, error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return c.Conn.Write(p)
}

func (c tlsLike) CloseWrite() error {
	_, err := c.Write([]byte("bye"))
	return err
}

// TestClientDoesNotRead checks that Close makes a write fail that is blocked because the client
// does not read.
func TestClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer client.Close()
		w := hijacked{conn: tlsLike{server, make(chan struct{}, 1)}}
		conn, _, err := halfclose.Linger(w, clock.Real(), halfclose.Patience).(http.Hijacker).Hijack()
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := conn.Write([]byte("x"))
			written <- err
		}()
		synctest.Wait() // wait until the write is blocked
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := <-written; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("error of the blocked write: %v", err)
		}
	})
}
