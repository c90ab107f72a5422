// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"io"

	"golang.org/x/net/http2"
)

// tokenSize is the size of what the server is made to send on a stream so that its number
// is seen. It is never sent.
const tokenSize = 16

// outbound is where the server is in what it writes.
type outbound struct {
	left  int  // bytes of a frame's payload that are to come
	data  int  // bytes of the frame that count as data
	block bool // a header block goes on in the next frame, and nothing may come between
	part  [headerSize + tokenSize]byte
	n     int // bytes of part: the beginning of a frame, not yet passed on
}

// between reports whether the next byte begins a frame, and any frame may come before it.
func (o *outbound) between() bool { return o.left == 0 && o.n == 0 && !o.block }

// pass writes what the server has written, but for tokens.
func (o *outbound) pass(b []byte, to io.Writer, f *flow) error {
	from, at := 0, 0 // what has been written, and what has been looked at
	for at < len(b) {
		if o.left > 0 {
			n := min(o.left, len(b)-at)
			o.left -= n
			at += n
			continue
		}
		begin := at // of a frame, or of what is there of it
		frame := b[at:]
		if o.n > 0 || len(frame) < headerSize+tokenSize {
			taken := copy(o.part[o.n:], frame)
			frame = o.part[:o.n+taken]
		}
		size, token, complete := o.begin(frame, f)
		if !complete {
			if err := write(to, b[from:begin]); err != nil {
				return err
			}
			o.n = copy(o.part[:], frame)
			return nil
		}
		if !token && o.data > 0 {
			err := f.use(o.data, func() error {
				err := write(to, b[from:begin]) // the client may wait for it
				from = begin
				return err
			})
			if err != nil {
				return err
			}
		}
		used := size - o.n // of b
		at += used
		switch {
		case token:
			if err := write(to, b[from:begin]); err != nil {
				return err
			}
			from = at
		case o.n > 0: // the frame began in an earlier write
			if err := write(to, o.part[:size]); err != nil {
				return err
			}
			from = at
		}
		o.n = 0
	}
	return write(to, b[from:])
}

// begin looks at the beginning of a frame. size is how much of it has been dealt with: its
// header, or all of what may be a token. It is not complete if more has to be seen.
func (o *outbound) begin(frame []byte, f *flow) (size int, token, complete bool) {
	if len(frame) < headerSize {
		return 0, false, false
	}
	h := headOf(frame)
	size, o.data = headerSize, 0
	if h.kind == http2.FrameData {
		o.data = h.size
	}
	if h.kind == http2.FrameData && h.size == tokenSize && f.expecting() {
		size += h.size
		if len(frame) < size {
			return 0, false, false
		}
		if f.found(h.stream, frame[headerSize:size]) {
			return size, true, true
		}
	}
	switch h.kind {
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		o.block = !h.flags.Has(http2.FlagHeadersEndHeaders) // the same bit in all three
	}
	if h.ends() {
		f.end(h.stream)
	}
	o.left = headerSize + h.size - size
	return size, false, true
}

func write(to io.Writer, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := to.Write(b)
	return err
}
