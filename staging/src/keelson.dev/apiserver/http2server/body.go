// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

func newReceiveWindow(size int) receiveWindow {
	return receiveWindow{size: int64(size), available: int64(size)}
}

// receiveWindow is a flow-control window for data from the client.
type receiveWindow struct {
	size      int64 // maximum number of bytes that the client may send before they are consumed
	available int64
	unsent    int64 // number of consumed bytes for which no WINDOW_UPDATE has been sent yet
}

// take removes n received bytes from the window, and reports whether the client was allowed to send
// them.
func (w *receiveWindow) take(n int64) bool {
	if n > w.available {
		return false
	}
	w.available -= n
	return true
}

// give returns how many bytes to grant to the client after n bytes have been consumed. It collects
// small amounts until they are a quarter of the window, to send fewer frames.
func (w *receiveWindow) give(n int64) int64 {
	if w.unsent += n; w.unsent < w.size/4 {
		return 0
	}
	n, w.unsent = w.unsent, 0
	w.available += n
	return n
}

// grantLocked allows the client to send n more bytes, because n bytes were consumed. st may be nil
// if the stream has ended.
func (c *conn) grantLocked(st *stream, n int64) {
	update := func(id uint32, n int64) {
		if n > 0 {
			c.appendControlLocked(func(f *http2.Framer) error {
				return f.WriteWindowUpdate(id, uint32(n)) //nolint:gosec // at most the size of the window
			})
		}
	}
	update(0, c.receive.give(n))
	if st != nil && !st.remoteClosed && st.err == nil {
		update(st.id, st.receive.give(n))
	}
}

var errBodyClosed = errors.New("http2: the request's body is closed")

// body is the body of a request. The connection's reader goroutine adds data, and the handler reads
// it. body.mu may be locked while conn.mu is held, but not the other way round.
type body struct {
	stream *stream

	mu      sync.Mutex
	more    sync.Cond
	data    []byte
	at      int   // offset of the first byte that has not been read
	err     error // returned by reads after data, or immediately if failed is set
	failed  bool
	trailer http.Header // trailers received so far; copied to Request.Trailer at the end
	invite  bool        // the client waits for 100 Continue
}

func newBody(st *stream) *body {
	b := &body{stream: st}
	b.more.L = &b.mu
	return b
}

// add appends data. It returns the number of bytes that it has kept: all of them, or none if the
// body has ended.
func (b *body) add(p []byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0
	}
	if b.at > 0 && len(b.data)+len(p) > cap(b.data) {
		b.data = b.data[:copy(b.data, b.data[b.at:])]
		b.at = 0
	}
	b.data = append(b.data, p...)
	b.more.Broadcast()
	return len(p)
}

// addTrailer stores a trailer and reports whether it is allowed.
func (b *body) addTrailer(name, value string) bool {
	key := http.CanonicalHeaderKey(name)
	switch key {
	case "Transfer-Encoding", "Trailer", "Content-Length":
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trailer == nil {
		b.trailer = http.Header{}
	}
	b.trailer.Add(key, value)
	return true
}

// end records that the body is complete.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = io.EOF
	}
	b.more.Broadcast()
}

// fail makes reads return err. If drop is set, it discards unread data, and returns the number of
// discarded bytes.
func (b *body) fail(err error, drop bool) (dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil || b.err == io.EOF && drop { //nolint:errorlint // the method end sets exactly this value
		b.err, b.failed = err, drop
	}
	if drop {
		dropped = len(b.data) - b.at
		b.data, b.at = nil, 0
	}
	b.more.Broadcast()
	return dropped
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	invite := b.invite
	b.invite = false
	b.mu.Unlock()
	if invite {
		b.stream.response.invite()
	}
	n, err := b.read(p)
	if n > 0 {
		c := b.stream.conn
		c.mu.Lock()
		defer c.mu.Unlock()
		c.grantLocked(b.stream, int64(n))
		c.flushSoonLocked()
	}
	return n, err
}

func (b *body) read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.at == len(b.data) && b.err == nil {
		b.more.Wait()
	}
	if b.failed || b.at == len(b.data) {
		declared := b.stream.request.Trailer
		for key, values := range b.trailer {
			if _, ok := declared[key]; ok && b.err == io.EOF { //nolint:errorlint // the method end sets exactly this value
				declared[key] = values
			}
		}
		return 0, b.err
	}
	n := copy(p, b.data[b.at:])
	if b.at += n; b.at == len(b.data) {
		b.data, b.at = b.data[:0], 0
	}
	return n, nil
}

// Close implements io.Closer. It discards the rest of the body.
func (b *body) Close() error {
	if n := b.fail(errBodyClosed, true); n > 0 {
		c := b.stream.conn
		c.mu.Lock()
		defer c.mu.Unlock()
		c.grantLocked(b.stream, int64(n))
		c.flushSoonLocked()
	}
	return nil
}
