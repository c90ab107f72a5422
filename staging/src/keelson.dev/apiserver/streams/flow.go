// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"time"

	"keelson.dev/api/clock"
)

const (
	// defaultWindow is the window of a stream unless settings say otherwise.
	defaultWindow = 64<<10 - 1
	// generous is the least that a client has to grant of the connection's window at
	// once for answers to be taken. Go's clients grant 1 GiB.
	generous = 16 << 20
)

var (
	errClosed   = errors.New("the connection is closed")
	errEnded    = errors.New("the stream has ended")
	errSettings = errors.New("settings that are not understood")
	errStalled  = errors.New("the client does not read what it requested")
)

// flow is what may be sent to whom. It is safe for concurrent use, and nobody who holds
// its lock waits for anything.
type flow struct {
	clock clock.Clock
	stall time.Duration // longest wait for a window; 0 means no limit

	mu      sync.Mutex
	err     error     // nothing is sent any more
	initial int64     // window of a new stream
	shared  bool      // the client is generous
	left    int64     // of the connection's window
	more    sync.Cond // left is
	// debt is what the server believes is left beyond left: what others have sent that the
	// client has not granted again. Of what it grants the server is told that much less.
	debt     int64
	streams  map[uint32]*Stream
	expected []*Stream // taken, but of an unknown number
}

func (f *flow) init(c clock.Clock, stall time.Duration) {
	f.clock, f.stall = c, stall
	f.initial, f.left = defaultWindow, defaultWindow
	f.more.L = &f.mu
}

// fail ends all streams that were taken: err says why.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.wakeLocked()
}

// end notes that a stream is over for the client or the server.
func (f *flow) end(stream uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.streams[stream]; s != nil {
		s.ended = true
		s.signalLocked()
	}
}

func (f *flow) wakeLocked() {
	f.more.Broadcast()
	for _, s := range f.streams {
		s.signalLocked()
	}
}

// setInitial takes a setting over; it counts for streams that are there as well (RFC
// 9113, section 6.9.2).
func (f *flow) setInitial(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		s.window += n - f.initial
	}
	f.initial = n
	f.wakeLocked()
}

// grant takes a window update over. left is what the server is to be told of it; nothing
// if it is the Conn's alone. An update of nothing is an error, which the server notices.
func (f *flow) grant(stream uint32, n int64) (left int64, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stream != 0 {
		s := f.streams[stream]
		if s == nil || n == 0 {
			return n, false
		}
		s.window += n
		s.signalLocked()
		return 0, true
	}
	if n == 0 {
		return 0, false
	}
	f.shared = f.shared || n >= generous
	f.left += n
	f.wakeLocked()
	back := min(n, f.debt)
	f.debt -= back
	return n - back, n == back
}

// use waits until the server may send n bytes, and takes them off the connection's window. The
// server may believe that more of the window is left. use calls waits before it waits. If a client
// grants too little for too long, nothing more is sent to it, because the server's other frames
// would have to wait as well.
func (f *flow) use(n int, waits func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left < int64(n) {
		f.mu.Unlock()
		err := waits()
		f.mu.Lock()
		if err != nil {
			return err
		}
		if f.stall > 0 {
			timer := f.clock.AfterFunc(f.stall, func() { f.fail(errStalled) })
			defer timer.Stop()
		}
	}
	for f.left < int64(n) && f.err == nil {
		f.more.Wait()
	}
	if f.left < int64(n) {
		return f.err
	}
	f.left -= int64(n)
	return nil
}

// spend reports whether n bytes may be sent on a stream, and takes them off its windows. left is
// what may be sent after them.
func (f *flow) spend(s *Stream, n int) (may bool, left int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stateLocked(s); err != nil {
		return false, 0, err
	}
	if int64(n) > min(s.window, f.left) {
		return false, 0, nil
	}
	f.takeLocked(s, int64(n))
	return true, min(s.window, f.left), nil
}

// spendSome is spend for as much of n bytes as may be sent. If that is nothing, s is woken when it
// may be more.
func (f *flow) spendSome(s *Stream, n int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stateLocked(s); err != nil {
		return 0, err
	}
	may := max(0, min(int64(n), s.window, f.left))
	s.waiting = may == 0 && n > 0
	f.takeLocked(s, may)
	return int(may), nil
}

func (f *flow) takeLocked(s *Stream, n int64) {
	s.window -= n
	f.left -= n
	f.debt += n
}

func (f *flow) stateLocked(s *Stream) error {
	if f.err == nil && s.ended {
		return errEnded
	}
	return f.err
}

// expect begins to look for the token of s, if its connection is one that can be shared.
func (f *flow) expect(s *Stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shared || f.err != nil || f.initial < defaultWindow {
		return false
	}
	f.expected = append(f.expected, s)
	return true
}

func (f *flow) expecting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.expected) > 0
}

// failed says why nothing is sent any more, or nil.
func (f *flow) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// found reports whether payload is the token of a stream that is expected, and marks that stream as
// known. The server believes that it has spent the token's size of the connection's window. Only
// the whole token counts: other answers can be as short as a part of it and have any content.
func (f *flow) found(stream uint32, payload []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.expected, func(s *Stream) bool { return bytes.Equal(s.token[:], payload) })
	if at < 0 {
		return false
	}
	s := f.expected[at]
	f.expected = slices.Delete(f.expected, at, at+1)
	defer close(s.known)
	if f.streams == nil {
		f.streams = map[uint32]*Stream{}
	}
	s.id, s.window = stream, f.initial
	f.streams[stream] = s
	f.debt -= tokenSize
	return true
}

// forget ends that s is expected or taken.
func (f *flow) forget(s *Stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expected = slices.DeleteFunc(f.expected, func(e *Stream) bool { return e == s })
	s.ended = true
	s.signalLocked()
	if f.streams[s.id] == s {
		delete(f.streams, s.id)
	}
}
