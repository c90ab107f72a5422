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
	"sync/atomic"
	"time"

	utilclock "k8s.io/utils/clock"

	"keelson.dev/api/clock"
)

var (
	// errStalled ends the reading of a body that the client does not send in time.
	errStalled = errors.New("the client does not send the body")
	// errSilent cancels a request whose client and endpoint have exchanged no data for too long.
	errSilent = errors.New("nothing was exchanged for too long")
)

// longAgo returns a time in the past. As a deadline of a connection, it ends pending reads and
// writes.
func longAgo() time.Time { return time.Unix(1, 0) }

// exchange is one request and its response. It implements http.ResponseWriter and limits how long
// the client may take. It sets a deadline when the client has to send or read, and extends the
// deadline when the client makes progress. So long uploads and downloads, event streams and
// upgraded connections last as long as they make progress.
type exchange struct {
	http.ResponseWriter
	clock   clock.Clock
	limits  *Limits
	control *http.ResponseController
	conn    *connection // nil if the connection is not from the proxy's listener
	http2   bool
	code    int

	reading, writing, silence utilclock.Timer
	// budget is how much time the client still has to send the body. Only the body's reader uses it.
	budget time.Duration
	ended  atomic.Bool // true after the handler has returned

	mu        sync.Mutex
	over      bool // true after the handler has returned or the connection was hijacked
	stalled   bool // true if the body did not arrive in time
	streaming bool // true if the body is a stream, which only the silence timer limits
	unread    bool // true until the whole body has been read
	queued    int  // number of unacknowledged bytes at the last call of notTaken in this write, else 0
	hijacked  net.Conn
}

// newExchange returns the exchange of a request: the request and its response, with their time
// limits. It calls cancel if the request must end.
func newExchange(w http.ResponseWriter, r *http.Request, p *Proxy, cancel context.CancelCauseFunc) *exchange {
	e := &exchange{
		ResponseWriter: w, clock: p.clock, limits: &p.limits, control: http.NewResponseController(w),
		http2:  r.ProtoMajor >= 2,
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
		_ = e.control.SetWriteDeadline(time.Time{}) // clears the deadline that the previous request on the connection has set
	}
	return e
}

// end must be called when the handler has returned. For HTTP/1, it sets a deadline for the data
// that the server still writes, and for the rest of a body that the handler has not read.
func (e *exchange) end() {
	e.ended.Store(true)
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
	e.over, e.hijacked = true, nil
}

// active restarts the silence timer. A read or write may return after the handler has returned,
// because the connection was closed. Then active stops the timer, which would keep the exchange and
// its connection in memory. It checks this after the restart, because the handler may return during
// the restart.
func (e *exchange) active() {
	e.silence.Reset(e.limits.Silence)
	if e.ended.Load() {
		e.silence.Stop()
	}
}

// notSent ends the reading of a body that did not arrive in time. The response can still be
// written.
func (e *exchange) notSent() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.streaming {
		return
	}
	e.stalled = true
	_ = e.control.SetReadDeadline(longAgo())
}

// gaveUp reports whether notSent has ended the reading of the body.
func (e *exchange) gaveUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stalled
}

// notTaken is called when a write takes longer than Limits.Stall, and again after each further
// period of that length. It disconnects the client unless the client makes progress.
//
// It measures progress by the number of bytes, sent by this or other writes, that the client has not
// acknowledged. In each period, this number must decrease by at least minRate bytes per second. The
// first call has no earlier number to compare with, so it only stores the number. But if the client
// has acknowledged all bytes, each call disconnects it at once. The write then does not wait for
// acknowledgements, so they cannot show progress: it waits until an HTTP/2 client accepts more data.
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
		_ = e.control.SetReadDeadline(longAgo()) // ends a read too, because a write may first read the rest of the body
		_ = e.control.SetWriteDeadline(longAgo())
	}
}

// markStreaming makes the silence timer the only time limit of the body. It is called for HTTP/2
// requests whose response has begun, and for those whose clients may wait for a response before
// they send more.
func (e *exchange) markStreaming() {
	e.mu.Lock()
	e.streaming = true
	e.mu.Unlock()
}

// WriteHeader implements http.ResponseWriter. It stores the last code, because informational (1xx)
// codes may precede the final one.
func (e *exchange) WriteHeader(code int) {
	e.code = code
	if e.http2 && code >= http.StatusOK {
		e.markStreaming()
	}
	e.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. If WriteHeader was not called, the code is 200.
func (e *exchange) Write(b []byte) (int, error) {
	if e.code < http.StatusOK {
		e.WriteHeader(http.StatusOK)
	}
	e.take()
	defer e.taken()
	return e.ResponseWriter.Write(b)
}

// FlushError flushes the response. http.ResponseController calls it.
func (e *exchange) FlushError() error {
	e.take()
	defer e.taken()
	return e.control.Flush()
}

// take starts the time limit of a write to the client.
func (e *exchange) take() { e.writing.Reset(e.limits.Stall) }

// taken must be called after a write to the client has returned.
func (e *exchange) taken() {
	e.writing.Stop()
	e.active()
	e.mu.Lock()
	e.queued = 0
	e.mu.Unlock()
}

// Hijack implements http.Hijacker.
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

// upgraded is a connection that was hijacked for another protocol.
type upgraded struct {
	net.Conn
	e *exchange
}

// Read implements net.Conn.
func (u *upgraded) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	u.e.active()
	return n, err
}

// Write implements net.Conn.
func (u *upgraded) Write(b []byte) (int, error) {
	u.e.take()
	defer u.e.taken()
	return u.Conn.Write(b)
}

// CloseWrite closes the sending side of the connection to the client. The client can still send.
func (u *upgraded) CloseWrite() error { return closeWrite(u.Conn) }

// body is the body of a request. Its Read enforces the time limits of the exchange (the request and
// its response).
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
	if !e.streaming {
		e.reading.Reset(max(e.budget, time.Millisecond))
	}
	e.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	e.reading.Stop()
	e.active()
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
