// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package halfclose makes a proxy of streams deliver all data that one side has sent, even if the
// data of the other side can no longer be delivered.
//
// A command may exit before it has read its input. The server of the stream then writes the last
// output and the exit code, and closes its connection, while the client is still sending. The proxy
// of k8s.io/apimachinery ends both directions as soon as one of them fails. Besides, closing a TCP
// connection with unread data resets it, which drops data that has not been delivered. In both
// cases, the client would not receive the exit code, and would take the end of the connection for
// success.
//
// Therefore a connection from Dial ignores failed writes, and the stream ends only when reads end.
// A connection hijacked from Linger, when it is closed, first closes only its writing side. It then
// discards what the client still sends, until the client has received everything and has closed its
// side. Neither of the two buffers data.
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

// Patience is the time that servers pass to [Linger].
const Patience = 5 * time.Second

// maxPeriods limits how long a closed connection waits for a client that still receives data but does
// not close its side: it waits for this many times the patience.
const maxPeriods = 120

// DialFunc connects to an address.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dial returns a DialFunc like dial. Its connections ignore errors of writes.
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

// Write never fails. If the peer has closed the connection, the proxy learns this from a read,
// after the last data.
func (c backend) Write(p []byte) (int, error) {
	_, _ = c.Conn.Write(p)
	return len(p), nil
}

// Linger returns a writer for w. When the connection hijacked from it is closed, it first waits
// until the client has closed its side. It stops waiting when the client has received no data for the
// time patience, or after 120 times patience in total.
func Linger(w http.ResponseWriter, clk clock.Clock, patience time.Duration) http.ResponseWriter {
	return &lingering{w, clk, patience}
}

type lingering struct {
	http.ResponseWriter
	clock    clock.Clock
	patience time.Duration
}

// Unwrap returns the inner writer, for http.ResponseController.
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

// Close implements net.Conn. It closes the writing side, waits until the client closes its side,
// and then closes the connection. If the writing side cannot be closed on its own, it does not
// wait.
func (c client) Close() error {
	done := make(chan struct{})
	var limit sync.WaitGroup
	limit.Go(func() { c.limit(done) })
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, c.Conn) // returns when the client closes its side, or at the deadline that limit sets
	}
	close(done)
	limit.Wait()
	return c.Conn.Close()
}

// limit makes reads and writes of the connection fail when the client has received nothing for the
// time patience, unless the channel done is closed earlier. Writes must fail too, because a write
// blocks while the client does not read.
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

// unsent returns the number of bytes that the peer of a TCP connection, or of TLS over TCP, has not
// acknowledged. For other connections, it returns 0.
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
