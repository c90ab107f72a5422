// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package halfclose lets a proxied stream deliver what one side has sent even if the other side's
// data cannot be delivered any more.
//
// A command may exit before it has read its input. The server of the stream then writes the last
// output and the exit code, and closes its connection, while the client is still sending. The proxy
// of k8s.io/apimachinery ends both directions as soon as one fails, and closing a TCP connection
// with unread data resets it, which drops data that was not delivered yet. In both cases the client
// would take the end of the connection for success.
//
// So a connection from Dial discards data that its peer does not accept, and lets the other
// direction end the stream. A connection that was hijacked from Linger first closes its writing
// side, and reads what the client still sends, until the client has received everything and has
// closed its side. Neither buffers data.
package halfclose

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"keelson.dev/api/clock"
)

// Patience is how long servers let a closed connection wait for a client that receives nothing.
const Patience = 5 * time.Second

// maxPeriods limits how long a server waits, in periods of Patience, for a client that still receives
// data but does not close its side.
const maxPeriods = 120

// DialFunc connects to an address.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dial returns a DialFunc whose connections discard writes that fail.
func Dial(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return backend{conn}, nil
	}
}

type backend struct{ net.Conn }

// Write never fails: if the peer is gone, reads report it after the last data.
func (c backend) Write(p []byte) (int, error) {
	_, _ = c.Conn.Write(p)
	return len(p), nil
}

// Linger returns a writer whose hijacked connection waits, when it is closed, until the client has
// closed its side, or has received nothing for patience, and for at most 120 times patience.
func Linger(w http.ResponseWriter, clk clock.Clock, patience time.Duration) http.ResponseWriter {
	return &lingering{w, clk, patience}
}

type lingering struct {
	http.ResponseWriter
	clock    clock.Clock
	patience time.Duration
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *lingering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *lingering) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return client{conn, w.clock, w.patience}, rw, nil
}

type client struct {
	net.Conn
	clock    clock.Clock
	patience time.Duration
}

// Close implements net.Conn. It closes the writing side, and waits for the client to close its own.
// It does not wait if the writing side cannot be closed separately.
func (c client) Close() error {
	done := make(chan struct{})
	var limit sync.WaitGroup
	limit.Go(func() { c.limit(done) })
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, c.Conn) // until the client closes, or the deadline
	}
	close(done)
	limit.Wait()
	return c.Conn.Close()
}

// limit ends the reads and writes of the connection when patience ends before done closes. A write
// may be blocked because the client does not read.
func (c client) limit(done <-chan struct{}) {
	ticker := c.clock.NewTicker(c.patience)
	defer ticker.Stop()
	left := unsent(c.Conn)
	for range maxPeriods {
		select {
		case <-done:
			return
		case <-ticker.C():
		}
		now := unsent(c.Conn)
		if now >= left {
			break
		}
		left = now
	}
	_ = c.SetDeadline(c.clock.Now())
}

// unsent returns how many bytes the peer of a TCP connection, or of TLS over TCP, has not received.
// It returns 0 for other connections.
func unsent(conn net.Conn) int {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		if m, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = m
		}
	})
	return n
}
