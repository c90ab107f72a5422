// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// timer is a timer that a clock's AfterFunc returns.
type timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// farewell is how long a connection stays open after GOAWAY and the end of its last stream, so that
// the client can read GOAWAY.
const farewell = time.Second

var (
	errConnClosed = errors.New("http2: the connection is closed")
	errNoAnswer   = errors.New("http2: the client does not answer a ping")
	errStalled    = errors.New("http2: the client grants no window")
)

// conn is a connection. The goroutine that runs the method serve reads its frames.
type conn struct {
	server   *server
	net      net.Conn        // the TLS connection
	below    io.Closer       // the connection below TLS
	handler  http.Handler    // net/http's; see handlerOf
	base     context.Context // base context of requests; ends with the connection
	end      context.CancelFunc
	tlsState *tls.ConnectionState
	remote   string
	framer   *http2.Framer // for reading only; write.go writes frames

	mu sync.Mutex // guards the fields below

	// State of the streams.
	streams map[uint32]*stream
	lastID  uint32    // highest stream ID that the client has used
	running int       // number of running handlers, including those of streams that have been reset
	queued  []*stream // streams whose handlers start when another handler returns

	// Output; see write.go.
	out       *[]byte // frames to be sent; nil if there are none
	control   int     // number of frames in out that use no flow-control window
	writing   bool    // a goroutine is writing
	err       error   // why the connection has ended
	greeted   bool    // the server's settings, which have to be the first frame, are in out or sent
	encoder   *hpack.Encoder
	block     bytes.Buffer // output of encoder
	maxFrame  int64        // maximum payload of a frame that the server sends
	window    int64        // flow-control window of the connection, for data to the client
	initial   int64        // initial window of a new stream
	waiting   []*stream    // streams whose goroutines wait for a window or for room in the buffer out
	stalled   timer        // runs while streams wait for the connection's window
	leaving   bool         // GOAWAY has been queued
	leaveCode http2.ErrCode

	// Input.
	receive  receiveWindow
	lastRead time.Time // time of the last frame that was read
	pinged   time.Time // when a ping was sent, if no frame has arrived since; otherwise zero
	idle     time.Time // when the last stream ended, or the connection began
	timer    timer
}

// newConn returns the conn for n, a TLS connection. The argument below is the connection under it.
func newConn(
	s *server, n net.Conn, below io.Closer, state *tls.ConnectionState, h http.Handler, base context.Context,
) *conn {
	c := &conn{
		server: s, net: n, below: below, handler: h, tlsState: state, remote: n.RemoteAddr().String(),
		streams: map[uint32]*stream{}, maxFrame: maxSend, window: defaultWindow, initial: defaultWindow,
		receive: newReceiveWindow(s.limits.MaxReceiveBufferPerConnection),
	}
	c.base, c.end = context.WithCancel(base)
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer = http2.NewFramer(io.Discard, n)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(uint32(s.limits.MaxReadFrameSize)) //nolint:gosec // a frame has less than 16 MiB
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.MaxHeaderListSize = s.maxHeaderList()
	return c
}

// serve reads frames until the connection ends.
func (c *conn) serve() {
	defer c.end()
	now := c.server.clock.Now()
	_ = c.net.SetReadDeadline(now.Add(c.server.prefaceLimit())) // fails if the connection is closed
	if err := c.readPreface(); err != nil {
		return
	}
	c.mu.Lock()
	c.greetLocked()
	c.greeted = true
	c.lastRead, c.idle = now, now
	c.watchLocked()
	c.flushSoonLocked()
	c.mu.Unlock()
	if c.server.isDraining() { // the server may have begun to drain before the settings were queued
		c.goAway()
	}
	err := c.readFrames()
	c.mu.Lock()
	c.failLocked(err)
	c.mu.Unlock()
}

func (c *conn) readPreface() error {
	b := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.net, b); err != nil {
		return err
	}
	if string(b) != http2.ClientPreface {
		return errors.New("http2: the client does not begin with the preface")
	}
	return nil
}

// readFrames reads frames until the connection ends, and returns the reason.
func (c *conn) readFrames() error {
	for first := true; ; first = false {
		f, err := c.framer.ReadFrame()
		if err == nil {
			if _, ok := f.(*http2.SettingsFrame); first && !ok {
				err = http2.ConnectionError(http2.ErrCodeProtocol)
			} else {
				err = c.process(f)
			}
		}
		if first {
			_ = c.net.SetReadDeadline(time.Time{})
		}
		var ofStream http2.StreamError
		var ofConn http2.ConnectionError
		switch {
		case err == nil:
		case errors.As(err, &ofStream):
			c.resetUnknown(ofStream.StreamID, ofStream.Code)
		case errors.As(err, &ofConn):
			c.refuse(http2.ErrCode(ofConn))
			return err
		case errors.Is(err, http2.ErrFrameTooLarge):
			c.refuse(http2.ErrCodeFrameSize)
			return err
		default:
			return err
		}
	}
}

// refuse sends GOAWAY with an error code, and gives the client time to read it.
func (c *conn) refuse(code http2.ErrCode) {
	c.mu.Lock()
	c.goAwayLocked(code)
	c.flushSoonLocked()
	c.mu.Unlock()
	_ = c.net.SetReadDeadline(c.server.clock.Now().Add(farewell)) // fails if the connection is closed
	// Read the remaining input before closing: otherwise the kernel would reset the connection, and
	// the client might not receive GOAWAY.
	_, _ = io.Copy(io.Discard, io.LimitReader(c.net, maxOut))
}

// goAway sends GOAWAY, so that the client opens no more streams on this connection. Before the
// server's settings have been sent, it does nothing; serve then sends GOAWAY after them.
func (c *conn) goAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.greeted {
		return
	}
	c.goAwayLocked(http2.ErrCodeNo)
	c.flushSoonLocked()
}

func (c *conn) goAwayLocked(code http2.ErrCode) {
	if c.leaving && (code == http2.ErrCodeNo || c.leaveCode != http2.ErrCodeNo) {
		return
	}
	c.leaving, c.leaveCode = true, code
	c.appendControlLocked(func(f *http2.Framer) error { return f.WriteGoAway(c.lastID, code, nil) })
	c.closeIfDoneLocked()
}

// closeIfDoneLocked closes the connection if GOAWAY has been sent and no stream is open. It waits
// until queued frames are sent. If the client does not read them, the connection ends after
// WriteTimeout.
func (c *conn) closeIfDoneLocked() {
	if !c.leaving || len(c.streams) > 0 || c.err != nil {
		return
	}
	c.server.clock.AfterFunc(farewell, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.out != nil || c.writing {
			c.closeIfDoneLocked()
			return
		}
		c.failLocked(errConnClosed)
	})
}

// failLocked ends the connection and its streams.
func (c *conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.stalled != nil {
		c.stalled.Stop()
	}
	for _, st := range c.streams {
		st.failLocked(err)
	}
	c.queued = nil
	c.end()
	// Do not use c.net.Close: closing a TLS connection waits for a write in progress, which may
	// wait for the client.
	_ = c.below.Close()
}

// watchLocked sets the timer for the next ping, or for the end of a connection that stays idle.
func (c *conn) watchLocked() {
	l, now := &c.server.limits, c.server.clock.Now()
	next := time.Duration(0)
	at := func(t time.Time, d time.Duration) {
		if wait := max(t.Add(d).Sub(now), time.Millisecond); d > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	if !c.pinged.IsZero() {
		at(c.pinged, l.PingTimeout)
	} else {
		at(c.lastRead, l.SendPingTimeout)
	}
	if len(c.streams) == 0 && !c.leaving {
		at(c.idle, c.server.http.IdleTimeout)
	}
	switch {
	case next == 0:
	case c.timer == nil:
		c.timer = c.server.clock.AfterFunc(next, c.watch)
	default:
		c.timer.Reset(next)
	}
}

func (c *conn) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	l, now := &c.server.limits, c.server.clock.Now()
	if idle := c.server.http.IdleTimeout; idle > 0 && len(c.streams) == 0 && now.Sub(c.idle) >= idle {
		c.goAwayLocked(http2.ErrCodeNo)
	}
	switch {
	case !c.pinged.IsZero():
		if now.Sub(c.pinged) >= l.PingTimeout {
			c.failLocked(errNoAnswer)
			return
		}
	case l.SendPingTimeout > 0 && now.Sub(c.lastRead) >= l.SendPingTimeout:
		c.pinged = now
		c.appendControlLocked(func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) })
	}
	c.flushSoonLocked()
	c.watchLocked()
}
