// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/streams"
)

const (
	// fullRecord is the least that a TLS record of full size takes.
	fullRecord = 16 << 10
	// updateRecord is the size of a TLS record with a window update and nothing else.
	updateRecord = 5 + 9 + 4 + 1 + 16
	// recordWait is how long one waits for what follows a record, and updateWait for
	// what follows a window update: the answer to the request that was read.
	recordWait, updateWait = time.Millisecond, 10 * time.Millisecond
	// wholeFrame is the largest body of an answer that the HTTP/2 server sends with
	// the end of its stream; to larger ones it adds a frame that is empty.
	wholeFrame = 4 << 10
)

// gathering is a listener whose connections send TLS records together that belong
// together: one of full size and what follows it, because a frame of HTTP/2 is a
// record and nine bytes; window updates and what follows them; and the header of
// an answer and its body. By themselves these would be system calls and packets of
// their own: half of all that a large list makes, and more of a small answer.
type gathering struct {
	net.Listener
	after   func(time.Duration, func()) clock.Timer
	buffers sync.Pool // *[]byte
}

func newGathering(l net.Listener, after func(time.Duration, func()) clock.Timer) *gathering {
	return &gathering{Listener: l, after: after, buffers: sync.Pool{New: func() any { return new([]byte) }}}
}

// Accept returns the next connection.
func (g *gathering) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatheredConn{Socket: streams.NewSocket(conn), from: g}, nil
}

// announced adds the connection below TLS to the context of its requests, so that
// it is told of answers.
func announced(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*tls.Conn); ok {
		if g, ok := c.NetConn().(*gatheredConn); ok {
			return rest.WithAnnouncer(ctx, g)
		}
	}
	return ctx
}

// gatheredConn is a connection under TLS, which writes a record at a time. A record
// that is held back goes with the next, or by itself when there is none in time.
// Before a connection is closed TLS says farewell, so that nothing stays behind.
type gatheredConn struct {
	*streams.Socket
	from *gathering

	mu    sync.Mutex
	held  *[]byte // nil: nothing
	more  int     // records that others are about to follow
	timer clock.Timer
	late  error // of a write that nobody waited for
}

// Announce implements rest.Announcer. How many records are held back does not add
// up over answers that come at once: rather one too few than one that nothing follows.
func (c *gatheredConn) Announce(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.more = 1 // the header's
	if size > wholeFrame && size < fullRecord {
		c.more = 2 // and the body's: the end follows
	}
}

// Write implements net.Conn.
func (c *gatheredConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late != nil {
		return 0, c.late
	}
	wait := c.waitLocked(b)
	if c.held == nil && wait == 0 {
		return c.Socket.Write(b)
	}
	first := c.held == nil
	if first {
		c.held = c.from.buffers.Get().(*[]byte)
		*c.held = (*c.held)[:0]
	}
	*c.held = append(*c.held, b...)
	switch {
	case wait == 0:
		c.timer.Stop()
		if err := c.sendLocked(); err != nil {
			return 0, err
		}
	case c.timer == nil:
		c.timer = c.from.after(wait, c.sendLate)
	default:
		c.timer.Reset(wait)
	}
	return len(b), nil
}

// waitLocked is how long b may wait for what follows it.
func (c *gatheredConn) waitLocked(b []byte) time.Duration {
	switch {
	case len(b) >= fullRecord:
		if c.held == nil {
			return recordWait
		}
	case len(b) == updateRecord:
		if c.held == nil {
			return updateWait
		}
	case c.more > 0:
		c.more--
		return recordWait
	}
	return 0
}

func (c *gatheredConn) sendLocked() error {
	_, err := c.Socket.Write(*c.held)
	c.from.buffers.Put(c.held)
	c.held = nil
	return err
}

// sendLate sends what nothing has followed.
func (c *gatheredConn) sendLate() {
	c.mu.Lock()
	c.more = 0
	if c.held != nil {
		c.late = c.sendLocked()
	}
	c.mu.Unlock()
	_ = c.Flush() // who writes next finds out why not
}
