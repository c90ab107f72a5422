// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package http2server

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// maxSettings is the maximum number of settings in a SETTINGS frame.
const maxSettings = 100

var errReset = errors.New("http2: the client has reset the stream")

func connError(code http2.ErrCode) error { return http2.ConnectionError(code) }

func streamError(id uint32, code http2.ErrCode) error {
	return http2.StreamError{StreamID: id, Code: code}
}

// process handles a frame. If it returns an http2.StreamError, the caller resets that stream; after
// any other error, the connection ends.
func (c *conn) process(f http2.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.lastRead = c.server.clock.Now()
	if !c.pinged.IsZero() {
		c.pinged = time.Time{}
		c.watchLocked()
	}
	err := c.processLocked(f)
	c.flushSoonLocked()
	if err == nil {
		return c.err
	}
	return err
}

func (c *conn) processLocked(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.RSTStreamFrame:
		if c.isIdle(f.StreamID) {
			return connError(http2.ErrCodeProtocol)
		}
		if st := c.streams[f.StreamID]; st != nil {
			st.closeLocked(errReset)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			data := f.Data
			c.appendControlLocked(func(w *http2.Framer) error { return w.WritePing(true, data) })
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return streamError(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.GoAwayFrame:
		c.goAwayLocked(http2.ErrCodeNo)
	case *http2.PushPromiseFrame:
		return connError(http2.ErrCodeProtocol)
	}
	return nil // frames of unknown types are ignored
}

// isIdle reports whether a stream is idle: the client has never used its ID.
func (c *conn) isIdle(id uint32) bool { return id%2 == 0 || id > c.lastID }

// ignores reports whether the server ignores a frame because its stream was opened after GOAWAY.
func (c *conn) ignores(id uint32) bool { return c.leaving && id > c.lastID }

func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if f.NumSettings() > maxSettings {
		return connError(http2.ErrCodeProtocol)
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			return c.setInitialLocked(int64(s.Val))
		case http2.SettingMaxFrameSize:
			c.maxFrame = min(int64(s.Val), maxSend)
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(s.Val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.appendControlLocked((*http2.Framer).WriteSettingsAck)
	return nil
}

// setInitialLocked sets the initial window, which also changes the windows of open streams (RFC
// 9113, section 6.9.2).
func (c *conn) setInitialLocked(n int64) error {
	change := n - c.initial
	c.initial = n
	for _, st := range c.streams {
		if st.window += change; st.window > maxWindow {
			return connError(http2.ErrCodeFlowControl)
		}
		st.signalLocked()
	}
	return nil
}

func (c *conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	n := int64(f.Increment)
	if f.StreamID == 0 {
		if c.window += n; c.window > maxWindow {
			return connError(http2.ErrCodeFlowControl)
		}
		if c.stalled != nil {
			c.stalled.Stop()
			c.stalled = nil
		}
		c.signalWaitingLocked()
		return nil
	}
	if c.ignores(f.StreamID) {
		return nil
	}
	if c.isIdle(f.StreamID) {
		return connError(http2.ErrCodeProtocol)
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return nil // the stream has just ended
	}
	if st.window += n; st.window > maxWindow {
		return streamError(f.StreamID, http2.ErrCodeFlowControl)
	}
	st.signalLocked()
	return nil
}

func (c *conn) data(f *http2.DataFrame) error {
	id, size := f.StreamID, int64(f.Length) // the size includes the padding
	if c.isIdle(id) && !c.ignores(id) {
		return connError(http2.ErrCodeProtocol)
	}
	if !c.receive.take(size) {
		return connError(http2.ErrCodeFlowControl)
	}
	st := c.streams[id]
	if st == nil || st.remoteClosed {
		c.grantLocked(nil, size)
		if c.ignores(id) {
			return nil
		}
		return streamError(id, http2.ErrCodeStreamClosed)
	}
	if !st.receive.take(size) {
		c.grantLocked(nil, size)
		return streamError(id, http2.ErrCodeFlowControl)
	}
	data := f.Data()
	st.received += int64(len(data))
	if st.declared >= 0 && (st.received > st.declared || f.StreamEnded() && st.received != st.declared) {
		c.grantLocked(nil, size)
		return streamError(id, http2.ErrCodeProtocol)
	}
	taken := 0
	if len(data) > 0 {
		taken = st.body.add(data)
	}
	if rest := size - int64(taken); rest > 0 { // padding, and data that no handler will read
		c.grantLocked(st, rest)
	}
	if f.StreamEnded() {
		st.endBodyLocked()
	}
	return nil
}

func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if c.ignores(id) {
		return nil
	}
	if id%2 == 0 {
		return connError(http2.ErrCodeProtocol)
	}
	if st := c.streams[id]; st != nil {
		return c.trailers(st, f)
	}
	if id <= c.lastID {
		if len(f.PseudoFields()) == 0 {
			// These are trailers that the client sent before it knew that the server had ended the
			// stream, for example after an early response. They are discarded (RFC 9113, section
			// 5.1, "closed").
			return nil
		}
		return connError(http2.ErrCodeStreamClosed) // the client uses the ID of an ended stream again
	}
	c.lastID = id
	if f.HasPriority() && f.Priority.StreamDep == id {
		return streamError(id, http2.ErrCodeProtocol)
	}
	limit := c.server.limits.MaxConcurrentStreams
	if len(c.streams) >= limit {
		return streamError(id, http2.ErrCodeRefusedStream)
	}
	// A stream that the client has reset no longer counts as open, although its handler may still
	// run, or wait in queued. Therefore queued has a limit too. A client that exceeds it resets
	// streams faster than their handlers return.
	if len(c.queued) >= limit {
		return connError(http2.ErrCodeEnhanceYourCalm)
	}
	return c.openLocked(f)
}

// trailers handles the trailers of a request, which end its body.
func (c *conn) trailers(st *stream, f *http2.MetaHeadersFrame) error {
	if st.remoteClosed {
		return streamError(st.id, http2.ErrCodeStreamClosed)
	}
	if !f.StreamEnded() || len(f.PseudoFields()) > 0 || st.declared >= 0 && st.received != st.declared {
		return streamError(st.id, http2.ErrCodeProtocol)
	}
	for _, field := range f.RegularFields() {
		if strings.HasPrefix(field.Name, ":") || !st.body.addTrailer(field.Name, field.Value) {
			return streamError(st.id, http2.ErrCodeProtocol)
		}
	}
	st.endBodyLocked()
	return nil
}

// resetUnknown resets the stream with an ID, whether or not that stream is open.
func (c *conn) resetUnknown(id uint32, code http2.ErrCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[id]; st != nil {
		st.resetLocked(code, streamError(id, code))
	} else {
		if id%2 == 1 && id > c.lastID && !c.leaving { // the stream was not opened because its header was invalid
			c.lastID = id
		}
		c.appendControlLocked(func(f *http2.Framer) error { return f.WriteRSTStream(id, code) })
	}
	c.flushSoonLocked()
}
