// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Client is an http.ResponseWriter that detects the end of a hijacked connection. It has no method
// Unwrap, so that stream servers use the connection that its Hijack returns.
type Client struct {
	http.ResponseWriter
	// SPDY is true if the client uses SPDY. Then a frame of more than 256 KiB is an error.
	SPDY bool
	// Gone is called when the connection fails, when the client closes it, and when the server closes
	// it. It may be called more than once.
	Gone func()
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (c *Client) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.conn = conn
	watched := watchedConn{conn, c.Gone}
	in := io.Reader(rw.Reader)
	if c.SPDY {
		in = &frames{Reader: in}
	}
	in = watchedReader{in, c.Gone}
	return watched, bufio.NewReadWriter(bufio.NewReader(in), bufio.NewWriter(watched)), nil
}

// Close closes the connection if it was hijacked. It is needed because stream servers do not close
// the connection after all errors.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close() // an error only means that the stream server has closed it
	}
}

type watchedReader struct {
	io.Reader
	gone func()
}

// Read implements io.Reader.
func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.gone()
	}
	return n, err
}

type watchedConn struct {
	net.Conn
	gone func()
}

// Write implements net.Conn.
func (c watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.gone()
	}
	return n, err
}

// Close implements net.Conn. A SPDY server calls it when the client announces the end of the
// connection.
func (c watchedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
