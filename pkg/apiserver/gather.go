// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// fullRecord is the least that a TLS record of full size takes.
	fullRecord = 16 << 10
	// recordWait is how long one waits for what follows it.
	recordWait = time.Millisecond
)

// gathering is a listener whose connections send a TLS record of full size
// together with what follows it. A frame of HTTP/2 is a record and nine bytes, and
// those would be a system call and a packet of their own: half of all that a large
// list makes.
type gathering struct {
	net.Listener
	clock   clock.WithDelayedExecution
	buffers sync.Pool // *[]byte
}

func newGathering(l net.Listener, clock clock.WithDelayedExecution) *gathering {
	return &gathering{Listener: l, clock: clock, buffers: sync.Pool{New: func() any { return new([]byte) }}}
}

// Accept returns the next connection.
func (g *gathering) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatheredConn{Conn: conn, from: g}, nil
}

// gatheredConn is a connection under TLS, which writes a record at a time. A record
// that is held back goes with the next, or by itself when there is none in time.
// Before a connection is closed TLS says farewell, so that nothing stays behind.
type gatheredConn struct {
	net.Conn
	from *gathering

	mu    sync.Mutex
	held  *[]byte // nil: nothing
	timer clock.Timer
	late  error // of a write that nobody waited for
}

// Write implements net.Conn.
func (c *gatheredConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.late != nil:
		return 0, c.late
	case c.held != nil:
		c.timer.Stop()
		*c.held = append(*c.held, b...)
		if err := c.sendLocked(); err != nil {
			return 0, err
		}
		return len(b), nil
	case len(b) < fullRecord:
		return c.Conn.Write(b)
	}
	c.held = c.from.buffers.Get().(*[]byte)
	*c.held = append((*c.held)[:0], b...)
	if c.timer == nil {
		c.timer = c.from.clock.AfterFunc(recordWait, c.sendLate)
	} else {
		c.timer.Reset(recordWait)
	}
	return len(b), nil
}

func (c *gatheredConn) sendLocked() error {
	_, err := c.Conn.Write(*c.held)
	c.from.buffers.Put(c.held)
	c.held = nil
	return err
}

// sendLate sends a record that nothing has followed.
func (c *gatheredConn) sendLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		c.late = c.sendLocked()
	}
}
