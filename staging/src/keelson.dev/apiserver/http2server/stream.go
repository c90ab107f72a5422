// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// stream is a request and its response. The connection's lock guards its fields.
type stream struct {
	conn   *conn
	id     uint32
	cancel context.CancelFunc // cancels the request's context
	err    error              // why the stream has ended

	// The request.
	request      *http.Request
	body         *body // nil if the request has no body
	declared     int64 // content-length; -1 if unknown
	received     int64
	receive      receiveWindow
	remoteClosed bool // the client has sent all of the request
	tooLarge     bool // the header is too large, so only a part of it was kept

	// The response.
	response    *response
	window      int64
	localClosed bool      // the end of the response has been queued
	changed     sync.Cond // wakes goroutines that wait to send; its lock is the connection's
	waiters     int       // number of goroutines that wait for changed
	listed      bool      // the stream is in conn.waiting

	readTimer, writeTimer timer
}

// openLocked opens the stream of a request. Its handler starts now, or when another handler returns
// if too many are running.
func (c *conn) openLocked(f *http2.MetaHeadersFrame) error {
	st := &stream{
		conn: c, id: f.StreamID, changed: sync.Cond{L: &c.mu},
		remoteClosed: f.StreamEnded(), tooLarge: f.Truncated, declared: -1,
		window: c.initial, receive: newReceiveWindow(c.server.limits.MaxReceiveBufferPerStream),
	}
	if err := st.makeRequest(f); err != nil {
		return err
	}
	st.response = newResponse(st)
	c.streams[st.id] = st
	st.readTimer = st.timerLocked(c.server.http.ReadTimeout, st.endReads)
	st.writeTimer = st.timerLocked(c.server.http.WriteTimeout, st.endWrites)
	if c.running < c.server.limits.MaxConcurrentStreams {
		c.running++
		go st.run()
		return nil
	}
	c.queued = append(c.queued, st)
	return nil
}

// run runs the handler. If the handler panics or calls runtime.Goexit, the stream is reset.
func (st *stream) run() {
	c := st.conn
	defer c.handlerDone()
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()                             // nil after runtime.Goexit
		if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			c.server.logf("http2: panic serving %v: %v\n%s", c.remote, p, debug.Stack())
		}
		st.abort()
	}()
	if st.tooLarge {
		handleTooLarge(st.response)
	} else {
		c.handlerOf(st.request).ServeHTTP(st.response, st.request)
	}
	st.response.finish()
	returned = true
}

// handlerOf returns the handler of a request. The handler that net/http passes to TLSNextProto
// functions does something only if the target is "*" or the server has no handler. Other requests
// do without it, because it keeps 0.6 KB of the stack of each watch.
func (c *conn) handlerOf(r *http.Request) http.Handler {
	if h := c.server.http.Handler; h != nil && r.RequestURI != "*" {
		return h
	}
	return c.handler
}

func handleTooLarge(w http.ResponseWriter) {
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	// This fails if the client has closed the connection.
	_, _ = w.Write([]byte("<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>"))
}

// abort resets the stream of a handler that has panicked or called runtime.Goexit.
func (st *stream) abort() {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	st.resetLocked(http2.ErrCodeInternal, http.ErrAbortHandler)
	st.response.releaseLocked()
	c.flushSoonLocked()
}

// handlerDone is called when a handler has returned. It starts the next queued handler, if any.
func (c *conn) handlerDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queued) > 0 {
		st := c.queued[0]
		c.queued[0] = nil
		c.queued = c.queued[1:]
		if st.err == nil {
			go st.run()
			return
		}
	}
	c.running--
}

// endLocked ends the stream after all of the response has been queued.
func (st *stream) endLocked() {
	if st.err != nil {
		return
	}
	st.localClosed = true
	if !st.remoteClosed { // tell the client to stop sending the request (RFC 9113, section 8.1)
		c, id := st.conn, st.id
		c.appendControlLocked(func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeNo) })
	}
	st.closeLocked(errConnClosed)
}

// resetLocked resets the stream. From now on, the handler's reads and writes return err.
func (st *stream) resetLocked(code http2.ErrCode, err error) {
	if st.err != nil {
		return
	}
	c, id := st.conn, st.id
	c.appendControlLocked(func(f *http2.Framer) error { return f.WriteRSTStream(id, code) })
	st.closeLocked(err)
}

// closeLocked removes the stream from its connection.
func (st *stream) closeLocked(err error) {
	if st.err != nil {
		return
	}
	c := st.conn
	st.failLocked(err)
	delete(c.streams, st.id)
	if len(c.streams) == 0 {
		c.idle = c.server.clock.Now()
		if c.server.limits.SendPingTimeout == 0 {
			c.watchLocked()
		}
		c.closeIfDoneLocked()
	}
}

// failLocked makes the handler's waiting reads and writes return.
func (st *stream) failLocked(err error) {
	if st.err != nil {
		return
	}
	st.err = err
	st.cancel()
	for _, t := range []timer{st.readTimer, st.writeTimer} {
		if t != nil {
			t.Stop()
		}
	}
	st.signalLocked()
	if st.body != nil {
		st.conn.grantLocked(nil, int64(st.body.fail(err, true)))
	}
}

// signalLocked wakes the goroutines that wait to send on the stream.
func (st *stream) signalLocked() { st.changed.Broadcast() }

// endBodyLocked records that the client has sent all of the request.
func (st *stream) endBodyLocked() {
	st.remoteClosed = true
	st.body.end()
	if st.readTimer != nil {
		st.readTimer.Stop()
	}
}

// timerLocked starts a timer that calls end after limit. It returns nil if limit is 0.
func (st *stream) timerLocked(limit time.Duration, end func()) timer {
	if limit <= 0 {
		return nil
	}
	return st.conn.server.clock.AfterFunc(limit, end)
}

// endReads makes reads of the body fail.
func (st *stream) endReads() {
	if st.body != nil {
		_ = st.body.fail(os.ErrDeadlineExceeded, false)
	}
}

// endWrites resets the stream, because its write deadline has passed.
func (st *stream) endWrites() {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	st.resetLocked(http2.ErrCodeInternal, os.ErrDeadlineExceeded)
	c.flushSoonLocked()
}

// setDeadline replaces a timer of the stream by one that calls end at t. If t is zero, there is no
// limit.
func (st *stream) setDeadline(timer *timer, t time.Time, end func()) error {
	c := st.conn
	c.mu.Lock()
	if st.err != nil {
		defer c.mu.Unlock()
		return st.err
	}
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
	wait := t.Sub(c.server.clock.Now())
	if !t.IsZero() && wait > 0 {
		*timer = st.timerLocked(wait, end)
	}
	c.mu.Unlock()
	if !t.IsZero() && wait <= 0 {
		end()
	}
	return nil
}
