// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	headerSize  = 9 // of a frame (RFC 9113, section 4.1)
	updateSize  = headerSize + 4
	prefaceSize = len(http2.ClientPreface)
	// frameSize is the largest payload that every client takes.
	frameSize = 16 << 10
	// settingSize is the size of one setting.
	settingSize = 6
)

// head is the header of a frame.
type head struct {
	size   int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// headOf reads a header; b has at least headerSize bytes.
func headOf(b []byte) head {
	return head{
		size: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind: http2.FrameType(b[3]), flags: http2.Flags(b[4]),
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

// appendData appends payload as frames of a stream.
func appendData(dst []byte, stream uint32, payload []byte) []byte {
	for len(payload) > 0 {
		n := min(len(payload), frameSize)
		dst = append(dst, byte(n>>16), byte(n>>8), byte(n), byte(http2.FrameData), 0)
		dst = binary.BigEndian.AppendUint32(dst, stream)
		dst = append(dst, payload[:n]...)
		payload = payload[n:]
	}
	return dst
}

// ends reports whether a frame of the server's is the last of its stream.
func (h head) ends() bool {
	switch h.kind {
	case http2.FrameRSTStream:
		return true
	case http2.FrameData:
		return h.flags.Has(http2.FlagDataEndStream)
	case http2.FrameHeaders:
		return h.flags.Has(http2.FlagHeadersEndStream)
	}
	return false
}
