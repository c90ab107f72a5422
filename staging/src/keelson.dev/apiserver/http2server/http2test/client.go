// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Client is an HTTP/2 client that sends and receives single frames. Apart from the preface and the
// settings that Dial sends, it sends only what the test asks for.
type Client struct {
	*http2.Framer
	Conn *tls.Conn

	t       testing.TB
	block   bytes.Buffer
	encoder *hpack.Encoder
}

// Dial opens a connection, sends settings and enlarges the connection's window by granted bytes.
func Dial(t testing.TB, address string, granted uint32, settings ...http2.Setting) *Client {
	t.Helper()
	conn := DialRaw(t, address)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := &Client{Framer: http2.NewFramer(conn, conn), Conn: conn, t: t}
	c.encoder = hpack.NewEncoder(&c.block)
	c.Must(c.WriteSettings(settings...))
	if granted > 0 {
		c.Must(c.WriteWindowUpdate(0, granted))
	}
	return c
}

// DialRaw opens a TLS connection that negotiates HTTP/2, with a small receive buffer.
func DialRaw(t testing.TB, address string) *tls.Conn {
	t.Helper()
	below, err := net.Dial(network(address), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = below.Close() })
	if err := below.(buffered).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(
		below, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	) //nolint:gosec // the server is the test's
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Must fails the test if err is not nil.
func (c *Client) Must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// Get requests a path. The request has no body.
func (c *Client) Get(stream uint32, path string) {
	c.t.Helper()
	c.Must(c.Begin(stream, "GET", path, true))
}

// Begin sends the header of a request. If end is set, the request has no body.
func (c *Client) Begin(stream uint32, method, path string, end bool, more ...hpack.HeaderField) error {
	return c.WriteHeaders(
		http2.HeadersFrameParam{
			StreamID: stream, BlockFragment: c.Block(method, path, more...), EndHeaders: true, EndStream: end,
		},
	)
}

// Block returns the encoded header of a request.
func (c *Client) Block(method, path string, more ...hpack.HeaderField) []byte {
	fields := []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: path},
	}
	return c.Fields(append(fields, more...)...)
}

// Fields returns encoded fields, for example those of trailers.
func (c *Client) Fields(fields ...hpack.HeaderField) []byte {
	c.block.Reset()
	for _, f := range fields {
		c.Must(c.encoder.WriteField(f))
	}
	return bytes.Clone(c.block.Bytes())
}

// Until reads frames until one satisfies the condition, and returns that frame. It returns nil if
// the connection ends first.
func (c *Client) Until(condition func(http2.Frame) bool) http2.Frame {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return nil
		}
		if condition(f) {
			return f
		}
	}
}

// Reset returns a condition for Until: the frame resets the stream.
func Reset(stream uint32) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		r, ok := f.(*http2.RSTStreamFrame)
		return ok && r.StreamID == stream
	}
}

// Ended returns a condition for Until: the frame ends the response on the stream, or resets the
// stream.
func Ended(stream uint32) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.DataFrame:
			return f.StreamID == stream && f.StreamEnded()
		case *http2.HeadersFrame:
			return f.StreamID == stream && f.StreamEnded()
		}
		return Reset(stream)(f)
	}
}

// Left returns a condition for Until: the frame is GOAWAY with the given code.
func Left(code http2.ErrCode) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		return ok && g.ErrCode == code
	}
}
