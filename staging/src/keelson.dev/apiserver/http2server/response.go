// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxHeld is the maximum number of bytes of a response that are buffered before the response is
	// flushed. A small response is sent together with its header.
	maxHeld = 16 << 10
	// maxMeasured is the size in bytes of the largest response to which the server adds a
	// content-length, as in net/http.
	maxMeasured = 4 << 10
)

var errFinished = errors.New("http2: the handler has returned")

// response is the ResponseWriter of a handler. Only the methods that set deadlines may be called by
// several goroutines.
type response struct {
	stream *stream

	header http.Header
	sent   http.Header // the header as it was when WriteHeader was called
	status int         // 0 until WriteHeader is called

	held     *[]byte // buffered part of the body; nil if empty
	begun    bool    // the header has been queued
	length   int64   // content-length that the handler has set; -1 if none
	written  int64   // number of bytes of the body so far
	finished bool

	trailers []string // canonical names of the declared trailers
	gone     chan bool
}

var (
	_ http.Flusher       = (*response)(nil)
	_ http.CloseNotifier = (*response)(nil) //nolint:staticcheck // Kubernetes' filters look for it
)

func newResponse(st *stream) *response {
	return &response{stream: st, header: http.Header{}, length: -1}
}

// Header implements http.ResponseWriter.
func (r *response) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. It sends informational responses (codes below 200)
// immediately.
func (r *response) WriteHeader(code int) {
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", code))
	}
	if r.status != 0 || r.finished {
		return
	}
	if code < http.StatusOK {
		r.inform(code, r.header)
		return
	}
	r.status = code
	r.sent = r.header.Clone()
	if v := r.sent.Get("Content-Length"); v != "" {
		if n, err := strconv.ParseUint(v, 10, 63); err == nil {
			r.length = int64(n) //nolint:gosec // 63 bits
		} else {
			r.sent.Del("Content-Length")
		}
	}
	for _, v := range r.sent["Trailer"] {
		for key := range strings.SplitSeq(v, ",") {
			r.declareTrailer(http.CanonicalHeaderKey(strings.TrimSpace(key)))
		}
	}
}

// invite sends 100 Continue.
func (r *response) invite() { r.inform(http.StatusContinue, nil) }

// inform sends an informational response.
func (r *response) inform(code int, header http.Header) {
	c := r.stream.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.stream.err != nil || r.begun {
		return
	}
	c.field(":status", strconv.Itoa(code))
	c.fields(header, "Content-Length", "Transfer-Encoding")
	c.appendBlockLocked(r.stream.id, false)
	c.flushSoonLocked()
}

// Write implements http.ResponseWriter. Data is buffered up to maxHeld until Flush is called or the
// handler returns.
func (r *response) Write(p []byte) (int, error) {
	if r.finished {
		return 0, errFinished
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(r.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if r.length >= 0 && r.written+int64(len(p)) > r.length {
		return 0, http.ErrContentLength
	}
	r.written += int64(len(p))
	c := r.stream.conn
	if n := len(p) + r.holds(); n <= maxHeld {
		if r.held == nil {
			r.held = c.server.buffer()
		}
		*r.held = append(*r.held, p...)
		return len(p), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := r.sendLocked(p, false); err != nil {
		return 0, err
	}
	c.flushLocked()
	return len(p), r.stream.err
}

// WriteString implements io.StringWriter.
func (r *response) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// Flush implements http.Flusher.
func (r *response) Flush() { _ = r.FlushError() }

// FlushError sends the buffered part of the response. http.ResponseController calls it.
func (r *response) FlushError() error {
	if r.finished {
		return errFinished
	}
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	c := r.stream.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := r.sendLocked(nil, false); err != nil {
		return err
	}
	c.flushLocked()
	return r.stream.err
}

// finish sends the rest of the response after the handler has returned.
func (r *response) finish() {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.finished = true
	c := r.stream.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := r.sendLocked(nil, true); err != nil {
		r.releaseLocked()
	}
	r.stream.endLocked()
	c.flushLocked()
}

func (r *response) holds() int {
	if r.held == nil {
		return 0
	}
	return len(*r.held)
}

// releaseLocked discards the buffered part of the response.
func (r *response) releaseLocked() {
	r.finished = true
	r.dropHeld()
}

func (r *response) dropHeld() {
	if r.held != nil {
		r.stream.conn.server.putBuffer(r.held)
		r.held = nil
	}
}

// sendLocked queues the header if that has not been done, then the buffered part of the body, then
// p.
func (r *response) sendLocked(p []byte, end bool) error {
	st := r.stream
	if st.err != nil {
		return st.err
	}
	if end {
		r.promoteTrailers()
	}
	head := r.request().Method == http.MethodHead
	if !r.begun {
		last := head || end && r.holds() == 0 && len(p) == 0 && len(r.trailers) == 0
		r.beginLocked(p, end, last)
		if last && !head {
			return nil
		}
	}
	if head {
		r.dropHeld()
		return nil
	}
	lastData := end && len(r.trailers) == 0
	if held := r.held; held != nil {
		r.held = nil
		err := st.conn.sendLocked(st, *held, lastData && len(p) == 0)
		st.conn.server.putBuffer(held)
		if err != nil || lastData && len(p) == 0 {
			return err
		}
	}
	if len(p) > 0 || lastData {
		if err := st.conn.sendLocked(st, p, lastData); err != nil {
			return err
		}
	}
	if end && len(r.trailers) > 0 {
		return r.sendTrailersLocked()
	}
	return nil
}

func (r *response) request() *http.Request { return r.stream.request }

// beginLocked queues the header. p is the part of the body after the buffered part. whole reports
// whether the body ends with p. end reports whether the response ends with the header.
func (r *response) beginLocked(p []byte, whole, end bool) {
	r.begun = true
	c, h := r.stream.conn, r.sent
	body := p
	if r.held != nil {
		body = *r.held
	}
	c.field(":status", strconv.Itoa(r.status))
	if h.Get("Connection") == "close" { // an HTTP/1 server would close the connection
		c.goAwayLocked(http2.ErrCodeNo)
	}
	c.fields(h, forbidden...)
	allowed := bodyAllowed(r.status)
	_, typed := h["Content-Type"]
	if !typed && h.Get("Content-Encoding") == "" && allowed && len(body) > 0 {
		c.field("content-type", http.DetectContentType(body))
	}
	if r.length < 0 && whole && allowed && len(body) <= maxMeasured && len(p) == 0 &&
		(len(body) > 0 || r.request().Method != http.MethodHead) {
		c.field("content-length", strconv.Itoa(len(body)))
	}
	if _, dated := h["Date"]; !dated {
		c.field("date", c.server.clock.Now().UTC().Format(http.TimeFormat))
	}
	c.appendBlockLocked(r.stream.id, end)
}

func (r *response) declareTrailer(key string) {
	if httpguts.ValidTrailerHeader(key) && !slices.Contains(r.trailers, key) {
		r.trailers = append(r.trailers, key)
	}
}

// promoteTrailers declares as trailers the fields that the handler has set with http.TrailerPrefix.
func (r *response) promoteTrailers() {
	for _, key := range slices.Sorted(maps.Keys(r.header)) {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			name = http.CanonicalHeaderKey(name)
			r.header[name] = r.header[key]
			r.declareTrailer(name)
		}
	}
}

func (r *response) sendTrailersLocked() error {
	c := r.stream.conn
	if r.stream.err != nil {
		return r.stream.err
	}
	for _, key := range r.trailers {
		for _, v := range r.header[key] {
			c.field(strings.ToLower(key), v)
		}
	}
	if c.block.Len() == 0 {
		return c.sendLocked(r.stream, nil, true)
	}
	c.appendBlockLocked(r.stream.id, true)
	return nil
}

// field adds a field to the header that is being encoded.
func (c *conn) field(name, value string) {
	// This never fails, because it writes to memory.
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
}

// fields adds the valid fields of h, except those named in the other arguments.
func (c *conn) fields(h http.Header, except ...string) {
	for key, values := range h {
		if slices.Contains(except, key) || strings.HasPrefix(key, http.TrailerPrefix) {
			continue
		}
		name := strings.ToLower(key)
		if !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				c.field(name, v)
			}
		}
	}
}

// SetReadDeadline sets the deadline for reading the body. http.ResponseController calls it.
func (r *response) SetReadDeadline(t time.Time) error {
	return r.stream.setDeadline(&r.stream.readTimer, t, r.stream.endReads)
}

// SetWriteDeadline sets the deadline for the response. http.ResponseController calls it.
func (r *response) SetWriteDeadline(t time.Time) error {
	return r.stream.setDeadline(&r.stream.writeTimer, t, r.stream.endWrites)
}

// EnableFullDuplex does nothing, because HTTP/2 is always full duplex. http.ResponseController
// calls it.
func (r *response) EnableFullDuplex() error { return nil }

// CloseNotify implements http.CloseNotifier, which Kubernetes' wrappers of ResponseWriters require.
func (r *response) CloseNotify() <-chan bool {
	if r.gone == nil {
		gone := make(chan bool, 1)
		r.gone = gone
		ctx := r.request().Context()
		go func() {
			<-ctx.Done() // ends when the stream ends
			gone <- true
		}()
	}
	return r.gone
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
