// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"errors"
	"io"
)

// maxFrame is the maximum size of the frames of SPDY clients, in bytes. With it, the queues of a
// connection (5 queues of 50 frames) hold at most 63 MiB. The protocol allows frames of 16 MiB, and
// client-go sends frames of 32 KiB.
const maxFrame = 256 << 10

var errFrame = errors.New("the client has sent a SPDY frame of more than 256 KiB")

// frames reads from a SPDY connection. It returns an error for a frame that is longer than
// maxFrame.
type frames struct {
	io.Reader
	header [8]byte
	have   int // number of bytes of header that have been read
	left   int // number of bytes until the next header
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if f.left > 0 {
			skip := min(f.left, len(rest))
			f.left -= skip
			rest = rest[skip:]
			continue
		}
		took := copy(f.header[f.have:], rest)
		f.have += took
		rest = rest[took:]
		if f.have == len(f.header) {
			f.have = 0
			f.left = int(binary.BigEndian.Uint32(f.header[4:]) & 0xffffff) // the first 8 bits are flags
			if f.left > maxFrame {
				return 0, errFrame
			}
		}
	}
	return n, err
}
