// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"
)

// ErrLost says that a stream could not be found among what the server writes. What has been
// written of it is not an answer any more: it is to be aborted.
var ErrLost = errors.New("the stream is not found in its connection")

const (
	// maxTry is the most that TrySend sends.
	maxTry = 128 << 10
	// maxSend is how much Send sends at a time: a frame that fills a record of TLS.
	maxSend = 16<<10 - headerSize
	// maxSearch is how long to wait for a stream's token. If the connection's window has no room for
	// the whole token, the server sends it in parts, which are not found.
	maxSearch = 10 * time.Second
)

// Stream is an answer that was taken from the server. TrySend and Send are used by one
// goroutine at a time, the other methods by any.
type Stream struct {
	c     *Conn
	token [tokenSize]byte
	known chan struct{} // closed when id is
	wake  chan struct{}

	// Guarded by the lock of the Conn's flow.
	id      uint32
	window  int64
	ended   bool
	waiting bool // somebody is told of what is granted
}

// Take takes an answer from the server, which has sent its header. It returns nil if the
// connection's client grants too little to be shared. The caller writes nothing more to
// w, and calls Release before its handler returns. ctx is that of the request.
func (c *Conn) Take(ctx context.Context, w http.ResponseWriter) (*Stream, error) {
	s := &Stream{c: c, known: make(chan struct{}), wake: make(chan struct{}, 1)}
	_, _ = rand.Read(s.token[:]) // never fails (crypto/rand)
	if !c.flow.expect(s) {
		return nil, nil
	}
	_, err := w.Write(s.token[:])
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err == nil {
		err = s.search(ctx)
	}
	if err != nil {
		c.flow.forget(s)
		return nil, err
	}
	return s, nil
}

// search waits until the server has written the stream's token.
func (s *Stream) search(ctx context.Context) error {
	timer := s.c.shared.later.clock.NewTimer(maxSearch)
	defer timer.Stop()
	select {
	case <-s.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return ErrLost
	}
}

// Release gives the stream back to the server, which ends it. Nothing is sent after that.
func (s *Stream) Release() {
	s.c.flow.forget(s)
}

// Sent is what TrySend has done.
type Sent int

// What TrySend does.
const (
	// Nothing was sent: the client, or somebody else who writes to it, has to be waited for.
	Nothing Sent = iota
	// Whole is on its way.
	Whole
	// Partly is on its way, and the rest is held, until Send is called: the kernel has to be waited for.
	Partly
)

// TrySend sends b if that can be done without waiting. An error means that nothing can be
// sent any more.
func (s *Stream) TrySend(b []byte) (Sent, error) {
	c := s.c
	if len(b) > maxTry || !c.writing.TryLock() {
		return Nothing, nil
	}
	defer c.writing.Unlock()
	if !c.out.between() || c.socket.held() {
		return Nothing, nil
	}
	may, left, err := c.flow.spend(s, len(b))
	if err != nil || !may {
		return Nothing, err
	}
	c.socket.unread.sending(left >= ample)
	if err := c.frames(s.id, b); err != nil {
		return Nothing, err
	}
	if c.socket.held() {
		return Partly, nil
	}
	return Whole, nil
}

// Send sends what TrySend has left, and b. It waits for the client until ctx is done or the client
// has read nothing for the server's limit. After an error nothing more can be sent.
func (s *Stream) Send(ctx context.Context, b []byte) error {
	for {
		n, err := s.writeSome(ctx, b[:min(len(b), maxSend)])
		if err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// writeSome waits until the client grants a window and sends as much of b as fits. The limit covers
// the whole wait, because window updates for other streams also wake s.
func (s *Stream) writeSome(ctx context.Context, b []byte) (int, error) {
	n, err := s.write(b)
	if err != nil || n > 0 || len(b) == 0 {
		return n, err
	}
	var stalled <-chan time.Time
	if limit := s.c.shared.stall; limit > 0 {
		timer := s.c.shared.later.clock.NewTimer(limit)
		defer timer.Stop()
		stalled = timer.C()
	}
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.wake:
		case <-stalled:
			return 0, errStalled
		}
		if n, err := s.write(b); err != nil || n > 0 {
			return n, err
		}
	}
}

// write sends as much of b as the client has granted, between the server's frames. What is spent
// is sent at once: the client may grant no more before it has that.
func (s *Stream) write(b []byte) (int, error) {
	c := s.c
	c.writing.Lock()
	defer c.writing.Unlock()
	for !c.out.between() {
		if err := c.flow.failed(); err != nil {
			return 0, err
		}
		turn := c.turnLocked() // the server is about to go on
		c.writing.Unlock()
		<-turn
		c.writing.Lock()
	}
	n, err := c.flow.spendSome(s, len(b))
	if err != nil {
		return 0, err
	}
	return n, c.patiently(func() error { return c.frames(s.id, b[:n]) })
}

// signalLocked wakes who waits to send. The lock of the flow is held.
func (s *Stream) signalLocked() {
	if !s.waiting {
		return
	}
	s.waiting = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
