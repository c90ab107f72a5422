// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"encoding/binary"
	"runtime"
	"slices"

	"golang.org/x/net/http2"
)

const (
	defaultWindow = 1<<16 - 1 // RFC 9113, section 6.9.2
	maxWindow     = 1<<31 - 1
	frameHeader   = 9
	// maxSend is the largest payload that is sent. With the frame's header it fills a TLS record.
	maxSend = 16<<10 - frameHeader
	// maxOut bounds the bytes of frames that wait to be written. Goroutines that send data on a
	// stream wait while it is exceeded.
	maxOut = 64 << 10
	// maxControl bounds the number of waiting frames that use no flow-control window, in addition
	// to one for each stream. The connection ends if the client causes more such frames than it
	// reads.
	maxControl = 1000
	// maxTurns is how many writes a handler's goroutine makes before another goroutine takes over.
	maxTurns = 4
)

// sink is a writer for a Framer. It appends frames to the output of a connection.
type sink struct{ c *conn }

// Write implements io.Writer.
func (s sink) Write(b []byte) (int, error) {
	out := s.c.outLocked()
	*out = append(*out, b...)
	return len(b), nil
}

// outLocked returns the buffer of frames to be sent, for appending.
func (c *conn) outLocked() *[]byte {
	if c.out == nil {
		c.out = c.server.buffer()
	}
	return c.out
}

// appendControlLocked queues a frame that uses no flow-control window.
func (c *conn) appendControlLocked(write func(*http2.Framer) error) {
	if !c.countControlLocked() {
		return
	}
	if err := write(http2.NewFramer(sink{c}, nil)); err != nil {
		c.failLocked(err)
	}
}

// countControlLocked counts a frame that uses no flow-control window, and reports whether it may be
// queued.
func (c *conn) countControlLocked() bool {
	if c.err != nil {
		return false
	}
	if c.control++; c.control > maxControl+c.server.limits.MaxConcurrentStreams {
		c.failLocked(connError(http2.ErrCodeEnhanceYourCalm))
	}
	return c.err == nil
}

// greetLocked queues the server's settings, and enlarges the connection's receive window to its
// configured size.
func (c *conn) greetLocked() {
	l := &c.server.limits
	settings := []http2.Setting{ // all values fit in 32 bits
		{ID: http2.SettingMaxFrameSize, Val: uint32(l.MaxReadFrameSize)},
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(l.MaxConcurrentStreams)},
		{ID: http2.SettingInitialWindowSize, Val: uint32(l.MaxReceiveBufferPerStream)},
		{ID: http2.SettingMaxHeaderListSize, Val: c.server.maxHeaderList()},
		{ID: http2.SettingNoRFC7540Priorities, Val: 1},
	}
	c.appendControlLocked(func(f *http2.Framer) error { return f.WriteSettings(settings...) })
	if more := l.MaxReceiveBufferPerConnection - defaultWindow; more > 0 {
		c.appendControlLocked(func(f *http2.Framer) error {
			return f.WriteWindowUpdate(0, uint32(more)) //nolint:gosec // at most the size of the window
		})
	}
}

// appendFrameLocked queues the header of a frame.
func (c *conn) appendFrameLocked(kind http2.FrameType, flags http2.Flags, id uint32, size int) *[]byte {
	out := c.outLocked()
	*out = append(*out, byte(size>>16), byte(size>>8), byte(size), byte(kind),
		byte(flags)) //nolint:gosec // a frame's size
	*out = binary.BigEndian.AppendUint32(*out, id)
	return out
}

// appendBlockLocked queues the encoded header in c.block as HEADERS and CONTINUATION frames. They
// count as one frame for maxControl, because a response that is only a header does not wait for
// room in the buffer out.
func (c *conn) appendBlockLocked(id uint32, end bool) {
	if !c.countControlLocked() {
		c.block.Reset()
		return
	}
	b, kind, flags := c.block.Bytes(), http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(b), int(c.maxFrame))
		if n == len(b) {
			flags |= http2.FlagHeadersEndHeaders // the flag has the same value in CONTINUATION frames
		}
		out := c.appendFrameLocked(kind, flags, id, n)
		*out = append(*out, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			break
		}
		kind, flags = http2.FrameContinuation, 0
	}
	c.block.Reset()
}

// sendLocked queues p as DATA frames of a stream. While it waits for room in out or for a window,
// it sends queued frames.
func (c *conn) sendLocked(st *stream, p []byte, end bool) error {
	for {
		if st.err != nil {
			return st.err
		}
		n := max(0, min(int64(len(p)), c.maxFrame, st.window, c.window))
		if (n == 0 && len(p) > 0) || c.out != nil && len(*c.out) >= maxOut {
			if c.out != nil && !c.writing {
				c.flushLocked()
			} else {
				c.waitLocked(st)
			}
			continue
		}
		flags := http2.Flags(0)
		if end && n == int64(len(p)) {
			flags = http2.FlagDataEndStream
		}
		out := c.appendFrameLocked(http2.FrameData, flags, st.id, int(n))
		*out = append(*out, p[:n]...)
		st.window -= n
		c.window -= n
		if p = p[n:]; len(p) == 0 {
			return nil
		}
	}
}

// waitLocked waits until the stream has ended, or until there may be room in out and a window. It
// releases the lock while it waits. Several goroutines may wait for one stream.
func (c *conn) waitLocked(st *stream) {
	if !st.listed {
		st.listed = true
		c.waiting = append(c.waiting, st)
	}
	limit := c.server.http.WriteTimeout
	if c.window <= 0 && c.stalled == nil && limit > 0 {
		var t timer
		t = c.server.clock.AfterFunc(limit, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.stalled != t {
				return // the timer was stopped after it had fired
			}
			c.stalled = nil
			if slices.ContainsFunc(c.waiting, func(st *stream) bool { return st.waiters > 0 }) {
				c.failLocked(errStalled)
			}
		})
		c.stalled = t
	}
	st.waiters++
	st.changed.Wait()
	st.waiters--
}

// signalWaitingLocked wakes all goroutines that wait for a window or for room in the buffer out.
// Each of them then checks whether it can send.
func (c *conn) signalWaitingLocked() {
	for i, st := range c.waiting {
		st.listed = false
		st.signalLocked()
		c.waiting[i] = nil
	}
	c.waiting = c.waiting[:0]
}

// flushSoonLocked starts a goroutine that sends the queued frames, and does not wait for it.
func (c *conn) flushSoonLocked() {
	if c.out == nil || c.writing || c.err != nil {
		return
	}
	c.writing = true
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writeLocked()
	}()
}

// flushLocked writes the queued frames in the caller's goroutine, so that a client that does not
// read slows its handler down. If another goroutine is already writing, that goroutine also writes
// these frames, and flushLocked returns immediately. It releases the lock while it writes.
func (c *conn) flushLocked() {
	if c.out == nil || c.writing || c.err != nil {
		return
	}
	c.writing = true
	if len(c.streams) > 1 && len(*c.out) < maxOut {
		// Let other goroutines run first. They may queue frames that the same write can send.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.writeLocked()
}

// writeLocked writes queued frames until there are none. The caller has set c.writing.
func (c *conn) writeLocked() {
	for turn := 0; c.out != nil && c.err == nil; turn++ {
		if turn == maxTurns { // the caller has to return to its handler, so a new goroutine continues
			go func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.writeLocked()
			}()
			return
		}
		b := c.out
		c.out, c.control = nil, 0
		c.signalWaitingLocked()
		c.mu.Unlock()
		err := c.write(*b)
		c.server.putBuffer(b)
		c.mu.Lock()
		if err != nil {
			c.failLocked(err)
		}
	}
	c.writing = false
}

func (c *conn) write(b []byte) error {
	if limit := c.server.http.WriteTimeout; limit > 0 {
		_ = c.net.SetWriteDeadline(c.server.clock.Now().Add(limit)) // fails if the connection is closed
	}
	_, err := c.net.Write(b)
	return err
}
