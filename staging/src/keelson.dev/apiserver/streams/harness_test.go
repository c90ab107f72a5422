// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"keelson.dev/apiserver/leaktest"
	"keelson.dev/apiserver/streams"
	"keelson.dev/apiserver/streams/streamstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serveTaken serves answers that are taken from the server, which send writes, at /taken,
// and plain ones elsewhere. It returns the address.
func serveTaken(t *testing.T, send func(s *streams.Stream, r *http.Request)) string {
	t.Helper()
	return streamstest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/taken" {
			plain(w, r)
			return
		}
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		s, err := streams.FromContext(r.Context()).Take(r.Context(), w)
		if s == nil {
			t.Errorf("the stream was not taken: %v", err)
			panic(http.ErrAbortHandler)
		}
		defer s.Release()
		send(s, r)
	}))
}

// client speaks HTTP/2 frame by frame.
type client struct {
	*http2.Framer
	t       *testing.T
	conn    *tls.Conn
	headers bytes.Buffer
	encoder *hpack.Encoder
}

// dial opens a connection with settings, and grants so much of its window.
func dial(t *testing.T, address string, granted uint32, settings ...http2.Setting) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // the server is the test's
	t.Cleanup(func() { _ = secure.Close() })
	if _, err := io.WriteString(secure, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &client{Framer: http2.NewFramer(secure, secure), t: t, conn: secure}
	c.encoder = hpack.NewEncoder(&c.headers)
	c.must(c.WriteSettings(settings...))
	if granted > 0 {
		c.must(c.WriteWindowUpdate(0, granted))
	}
	return c
}

func (c *client) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// get asks for a path on a stream.
func (c *client) get(stream uint32, path string) {
	c.t.Helper()
	c.headers.Reset()
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: path}} {
		c.must(c.encoder.WriteField(f))
	}
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.headers.Bytes(), EndHeaders: true, EndStream: true}))
}

// pattern is text of which every place tells where it is.
func pattern(from, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		at := from + i
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	return b
}
