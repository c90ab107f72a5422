// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"crypto/tls"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

// Conn is a connection of HTTP/2 whose answers can be taken from the server. Reads are
// the server's alone, by one goroutine; everything else is safe for concurrent use.
type Conn struct {
	*tls.Conn
	socket *Socket
	shared *shared
	in     inbound

	// writing is held while something is written. Who holds it may wait for the kernel, so
	// that TrySend only tries to have it.
	writing sync.Mutex
	out     outbound      // guarded by writing
	turn    chan struct{} // closed when the server has written more; guarded by writing

	flow flow
}

// shared is what the connections of a server share.
type shared struct {
	buffers sync.Pool // *[]byte, for frames on their way
	later   *later
	stall   time.Duration // how long a client may read nothing; 0 means no limit
}

func newShared(c clock.Clock, stall time.Duration) *shared {
	return &shared{buffers: sync.Pool{New: func() any { return new([]byte) }}, later: newLater(c), stall: stall}
}

// over returns a Conn over a connection that has shaken hands, and nil where it
// cannot be written to without waiting. socket is what conn is over.
func (s *shared) over(conn *tls.Conn, socket *Socket) *Conn {
	if !socket.makePrompt(s.later, s.stall) {
		return nil
	}
	c := &Conn{Conn: conn, socket: socket, shared: s}
	c.in.pass = prefaceSize
	c.flow.init(s.later.clock, s.stall)
	return c
}

// Read implements net.Conn, for the server.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b, c.Conn, &c.flow)
	c.socket.unread.other() // answers to events do not come to here
	if err != nil {
		c.flow.fail(err)
	}
	return n, err
}

// Write implements net.Conn, for the server. It waits for the kernel.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	defer c.endTurn()
	err := c.patiently(func() error { return c.out.pass(b, c.Conn, &c.flow) })
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// patiently calls write, which waits for the kernel, after what is held.
func (c *Conn) patiently(write func() error) error {
	c.socket.unread.other()
	c.socket.setPatient(true)
	defer c.socket.setPatient(false)
	if err := c.socket.Flush(); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	return c.socket.Flush()
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.flow.fail(errClosed)
	err := c.Conn.Close()
	c.writing.Lock() // soon: who writes has failed
	defer c.writing.Unlock()
	c.endTurn()
	return err
}

// turnLocked returns what is closed when the server has written more, or the connection
// is closed.
func (c *Conn) turnLocked() <-chan struct{} {
	if c.turn == nil {
		c.turn = make(chan struct{})
	}
	return c.turn
}

func (c *Conn) endTurn() {
	if c.turn != nil {
		close(c.turn)
		c.turn = nil
	}
}

// frames writes b as frames of a stream, without waiting.
func (c *Conn) frames(stream uint32, b []byte) error {
	buf := c.shared.buffers.Get().(*[]byte)
	defer c.shared.buffers.Put(buf)
	*buf = appendData((*buf)[:0], stream, b)
	_, err := c.Conn.Write(*buf)
	return err
}
