// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Client is an http.ResponseWriter that notices when the client of a hijacked connection closes it.
// It does not implement Unwrap, so that stream servers use its connection and not the one below.
type Client struct {
	http.ResponseWriter
	// SPDY is set if the client uses SPDY. Its frames are then limited to 256 KB.
	SPDY bool
	// Gone is called when the connection fails, ends or closes.
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

// Close closes the connection if it was hijacked. Stream servers do not close it after each error.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close() // the stream server may have closed it
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

// Close implements net.Conn. A SPDY server closes its connection when the client says that it ends.
func (c watchedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
