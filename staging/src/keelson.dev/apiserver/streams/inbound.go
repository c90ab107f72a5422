// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"encoding/binary"
	"io"

	"golang.org/x/net/http2"
)

// maxSettings bounds the settings that are looked at; there are seven or so.
const maxSettings = 32

// inbound is where the server is in what the client writes.
type inbound struct {
	pass  int    // bytes that are the server's whatever they are
	ready []byte // what has been read and is the server's
	buf   [headerSize + maxSettings*settingSize]byte
}

// read returns bytes for the server. A frame is either the server's as it stands, or a
// window update, of which the server may get a part.
func (in *inbound) read(b []byte, from io.Reader, f *flow) (int, error) {
	for {
		if len(in.ready) > 0 {
			n := copy(b, in.ready)
			in.ready = in.ready[n:]
			return n, nil
		}
		if in.pass > 0 {
			n, err := from.Read(b[:min(len(b), in.pass)])
			in.pass -= n
			return n, err
		}
		if err := in.next(from, f); err != nil {
			return 0, err
		}
	}
}

// next reads the header of a frame, and all of it if the Conn has to know it.
func (in *inbound) next(from io.Reader, f *flow) error {
	if _, err := io.ReadFull(from, in.buf[:headerSize]); err != nil {
		return err
	}
	h := headOf(in.buf[:])
	in.ready, in.pass = in.buf[:headerSize], h.size
	switch h.kind {
	case http2.FrameWindowUpdate:
		if h.size == updateSize-headerSize {
			return in.update(h, from, f)
		}
	case http2.FrameSettings:
		return in.settings(h, from, f)
	case http2.FrameRSTStream:
		f.end(h.stream)
	}
	return nil
}

// whole reads what follows the header.
func (in *inbound) whole(h head, from io.Reader) ([]byte, error) {
	in.ready, in.pass = nil, 0 // it is not the server's before it is complete
	payload := in.buf[headerSize:][:h.size]
	_, err := io.ReadFull(from, payload)
	return payload, err
}

func (in *inbound) update(h head, from io.Reader, f *flow) error {
	payload, err := in.whole(h, from)
	if err != nil {
		return err
	}
	granted := int64(binary.BigEndian.Uint32(payload) &^ (1 << 31))
	left, mine := f.grant(h.stream, granted)
	if mine {
		return nil
	}
	binary.BigEndian.PutUint32(payload, uint32(left)) //nolint:gosec // not more than was granted
	in.ready = in.buf[:updateSize]
	return nil
}

func (in *inbound) settings(h head, from io.Reader, f *flow) error {
	if h.size > maxSettings*settingSize || h.size%settingSize != 0 || h.flags.Has(http2.FlagSettingsAck) {
		if h.size > 0 {
			f.fail(errSettings) // the server may know what to make of it
		}
		return nil
	}
	payload, err := in.whole(h, from)
	if err != nil {
		return err
	}
	for s := payload; len(s) > 0; s = s[settingSize:] {
		if http2.SettingID(binary.BigEndian.Uint16(s)) == http2.SettingInitialWindowSize {
			f.setInitial(int64(binary.BigEndian.Uint32(s[2:])))
		}
	}
	in.ready = in.buf[:headerSize+h.size]
	return nil
}
