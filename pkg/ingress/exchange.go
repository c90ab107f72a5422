// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	utilclock "k8s.io/utils/clock"

	"keelson.dev/api/clock"
)

var (
	// errStalled ends the body of a client that does not send it.
	errStalled = errors.New("the client does not send the body")
	// errSilent ends a request in which nothing is exchanged any more.
	errSilent = errors.New("nothing was exchanged for too long")
)

// longAgo is a deadline that ends what is under way.
func longAgo() time.Time { return time.Unix(1, 0) }

// exchange is one request and its answer. It implements http.ResponseWriter, and
// bounds how long the client may take: deadlines begin when the client has
// something to do, and move on with what it does. Long uploads and downloads,
// events and upgraded connections last as long as they make progress.
type exchange struct {
	http.ResponseWriter
	clock   clock.Clock
	limits  *Limits
	control *http.ResponseController
	conn    *connection // nil if it is not one of the proxy's listener's
	http2   bool
	code    int

	reading, writing, silence utilclock.Timer
	budget                    time.Duration // that the client has for sending; used by the reader of the body

	mu       sync.Mutex
	over     bool // the handler has returned, or the connection was taken over
	stalled  bool // reading of the body was given up
	patient  bool // the body is a stream: silence bounds it
	unread   bool // the body has not come to its end
	queued   int  // what waited for the client when a write was last found to take long
	hijacked net.Conn
}

// newExchange begins one. cancel ends the request.
func newExchange(w http.ResponseWriter, r *http.Request, p *Proxy, cancel context.CancelCauseFunc) *exchange {
	e := &exchange{
		ResponseWriter: w, clock: p.clock, limits: &p.limits, control: http.NewResponseController(w), http2: r.ProtoMajor >= 2,
		budget: p.limits.Stall, unread: r.Body != nil && r.Body != http.NoBody,
	}
	e.conn, _ = r.Context().Value(connectionKey{}).(*connection)
	e.silence = e.clock.AfterFunc(p.limits.Silence, func() {
		cancel(errSilent)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.hijacked != nil {
			_ = e.hijacked.Close()
		}
	})
	e.writing = e.clock.AfterFunc(p.limits.Stall, e.notTaken)
	e.writing.Stop()
	if e.unread {
		e.reading = e.clock.AfterFunc(p.limits.Stall, e.notSent)
		e.reading.Stop()
		r.Body = &body{r.Body, e}
	}
	if !e.http2 {
		_ = e.control.SetWriteDeadline(time.Time{}) // what the last request of the connection has left
	}
	return e
}

// end is called when the handler returns. What the server still writes, and reads
// of a body that nobody wanted, has a deadline of its own.
func (e *exchange) end() {
	e.silence.Stop()
	e.writing.Stop()
	if e.reading != nil {
		e.reading.Stop()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over && !e.http2 {
		by := e.clock.Now().Add(e.limits.Stall)
		_ = e.control.SetWriteDeadline(by)
		if e.unread && !e.stalled {
			_ = e.control.SetReadDeadline(by)
		}
	}
	e.over = true
}

// notSent gives up a body that does not come. The answer can still be written.
func (e *exchange) notSent() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.patient {
		return
	}
	e.stalled = true
	_ = e.control.SetReadDeadline(longAgo())
}

// gaveUp reports whether the body did not come in time.
func (e *exchange) gaveUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stalled
}

// notTaken gives up a client that does not take its answer, unless what waits for
// it in the kernel has become less: that may be more than one write.
func (e *exchange) notTaken() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn != nil {
		progress := int(e.limits.Stall * minRate / time.Second)
		if q := e.conn.queued(); q > 0 && (e.queued == 0 || q <= e.queued-max(progress, 1)) {
			e.queued = q
			e.writing.Reset(e.limits.Stall)
			return
		}
	}
	switch {
	case e.hijacked != nil:
		_ = e.hijacked.SetDeadline(longAgo())
	case !e.over:
		_ = e.control.SetReadDeadline(longAgo()) // a write may first read what is left of the body
		_ = e.control.SetWriteDeadline(longAgo())
	}
}

// beMorePatient has silence alone bound the body: of HTTP/2 whose answer has
// begun, or that may wait for it.
func (e *exchange) beMorePatient() {
	e.mu.Lock()
	e.patient = true
	e.mu.Unlock()
}

// WriteHeader keeps the last code: informational ones come before it.
func (e *exchange) WriteHeader(code int) {
	e.code = code
	if e.http2 && code >= http.StatusOK {
		e.beMorePatient()
	}
	e.ResponseWriter.WriteHeader(code)
}

// Write implies the code of success, as everywhere.
func (e *exchange) Write(b []byte) (int, error) {
	if e.code < http.StatusOK {
		e.WriteHeader(http.StatusOK)
	}
	e.take()
	defer e.taken()
	return e.ResponseWriter.Write(b)
}

// FlushError is how a ResponseController flushes.
func (e *exchange) FlushError() error {
	e.take()
	defer e.taken()
	return e.control.Flush()
}

// take bounds a write that begins.
func (e *exchange) take() { e.writing.Reset(e.limits.Stall) }

// taken is called when a write has ended.
func (e *exchange) taken() {
	e.writing.Stop()
	e.silence.Reset(e.limits.Silence)
	e.mu.Lock()
	e.queued = 0
	e.mu.Unlock()
}

// Hijack takes the connection over for another protocol.
func (e *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := e.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over, e.hijacked, e.code = true, conn, http.StatusSwitchingProtocols
	return &upgraded{conn, e}, buffered, nil
}

// upgraded is a connection that was taken over.
type upgraded struct {
	net.Conn
	e *exchange
}

// Read implements net.Conn.
func (u *upgraded) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	u.e.silence.Reset(u.e.limits.Silence)
	return n, err
}

// Write implements net.Conn.
func (u *upgraded) Write(b []byte) (int, error) {
	u.e.take()
	defer u.e.taken()
	return u.Conn.Write(b)
}

// body is what a client sends, within the time that it has for it.
type body struct {
	io.ReadCloser
	e *exchange
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	e := b.e
	began := e.clock.Now()
	e.mu.Lock()
	if e.over {
		e.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	if !e.patient {
		e.reading.Reset(max(e.budget, time.Millisecond))
	}
	e.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	e.reading.Stop()
	e.silence.Reset(e.limits.Silence)
	earned := time.Duration(n) * time.Second / minRate
	e.budget = min(e.budget-e.clock.Since(began)+earned, e.limits.Stall)
	if err == nil {
		return n, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		e.unread = false
	case e.stalled:
		err = errStalled
	}
	return n, err
}
