// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deflate assembles gzip responses from pieces that were compressed earlier. A piece of a
// deflate stream can be placed anywhere if it does not refer to earlier data and ends at a byte
// boundary. The checksum of the response is computed from the checksums of the pieces.
package deflate

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Piece is a compressed part of a deflate stream. Other pieces, or the end of the stream, follow
// it.
type Piece struct {
	Data []byte
	Size int    // size of the uncompressed text, in bytes
	Sum  uint32 // CRC-32 of the uncompressed text
}

// Pool compresses texts to pieces. It does not keep the texts, and is safe for concurrent use.
type Pool struct {
	writers sync.Pool // elements are of type *writer
}

type writer struct {
	flate *flate.Writer
	out   bytes.Buffer
}

// NewPool returns a Pool.
func NewPool() *Pool {
	return &Pool{writers: sync.Pool{New: func() any {
		f, _ := flate.NewWriter(nil, flate.BestSpeed) // does not fail, because the level is valid
		return &writer{flate: f}
	}}}
}

// Piece compresses text to a piece, a part of a gzip stream that can be stored and sent in several
// streams.
func (p *Pool) Piece(text []byte) Piece {
	w := p.writers.Get().(*writer)
	defer p.writers.Put(w)
	return Piece{Data: bytes.Clone(w.compress(text)), Size: len(text), Sum: crc32.ChecksumIEEE(text)}
}

// compress returns text compressed as a piece (a part of a gzip stream that can be stored and sent
// in several streams). The result is valid until the next call.
func (w *writer) compress(text []byte) []byte {
	w.out.Reset()
	w.flate.Reset(&w.out)
	_, _ = w.flate.Write(text) // writes to a buffer do not fail
	_ = w.flate.Flush()
	return w.out.Bytes()
}

// Stream is a gzip stream in progress. It may be used by one goroutine at a time.
type Stream struct {
	pool *Pool
	w    io.Writer
	sum  uint32
	size uint32
	err  error
}

// header is the gzip header: no name, no time, fastest compression, unknown system.
const header = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"

// stored is the size in bytes up to which texts are sent uncompressed, because compressing them
// costs more than it saves.
const stored = 512

// Stream starts a gzip stream on w and writes its header.
func (p *Pool) Stream(w io.Writer) *Stream {
	s := &Stream{pool: p, w: w}
	s.write([]byte(header))
	return s
}

// Write compresses b as one piece and sends it. Each call makes a piece, so callers should buffer
// small writes.
func (s *Stream) Write(b []byte) (int, error) {
	if len(b) == 0 || s.err != nil {
		return 0, s.err
	}
	if len(b) <= stored {
		block := make([]byte, 5, 5+stored)
		binary.LittleEndian.PutUint16(block[1:], uint16(len(b)))
		binary.LittleEndian.PutUint16(block[3:], ^uint16(len(b)))
		s.write(append(block, b...))
	} else {
		w := s.pool.writers.Get().(*writer)
		defer s.pool.writers.Put(w)
		s.write(w.compress(b))
	}
	s.sum = crc32.Update(s.sum, crc32.IEEETable, b)
	s.size += uint32(len(b))
	return len(b), s.err
}

// Piece sends the compressed text p, which may have been compressed earlier.
func (s *Stream) Piece(p Piece) error {
	s.write(p.Data)
	s.sum = combine(s.sum, p.Sum, p.Size)
	s.size += uint32(p.Size)
	return s.err
}

// Close ends the stream. It does not close the writer that was passed to Pool.Stream.
func (s *Stream) Close() error {
	end := []byte{1, 0, 0, 0xff, 0xff} // the last block, empty
	end = binary.LittleEndian.AppendUint32(end, s.sum)
	s.write(binary.LittleEndian.AppendUint32(end, s.size))
	return s.err
}

func (s *Stream) write(b []byte) {
	if s.err == nil {
		_, s.err = s.w.Write(b)
	}
}

// combine returns the checksum of the concatenation of two texts with the checksums first and
// second. size is the length of the second text in bytes. CRC-32 is a polynomial; appending size
// bytes to a text multiplies its polynomial by x^(8*size).
func combine(first, second uint32, size int) uint32 {
	shift, square := uint32(1)<<31, uint32(1)<<30 // the polynomials 1 and x
	for range 3 {
		square = multiply(square, square)
	}
	for ; size > 0; size >>= 1 {
		if size&1 != 0 {
			shift = multiply(square, shift)
		}
		square = multiply(square, square)
	}
	return multiply(shift, first) ^ second
}

// multiply multiplies two polynomials over GF(2) modulo the polynomial of CRC-32. Their bits are in
// reverse order.
func multiply(a, b uint32) uint32 {
	product := uint32(0)
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			product ^= b
		}
		low := b & 1
		b >>= 1
		if low != 0 {
			b ^= crc32.IEEE
		}
	}
	return product
}
