// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"container/list"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"

	"keelson.dev/apiserver/deflate"
)

// blockEncoding has the encoded records of a block in one form, compressed. It lists the key and
// the revision of each record, so that the encoding of a changed block can copy all unchanged
// records from it.
//
// Invariant: form, keys, revs and ends do not change once the encoding is complete. The
// encodingCache may drop the encoded bytes, always all of them; the block makes them again when
// they are needed.
type blockEncoding struct {
	form Form
	keys []string
	revs []int64
	ends []uint32 // the offset at which each encoded record ends

	mu         sync.Mutex
	compressed []byte        // the encoded records, compressed with s2; nil if dropped
	deflated   deflate.Piece // the encoded records as a part of a gzip response; empty until a client accepts gzip

	place *list.Element // guarded by encodingCache.mu; nil if the cache does not contain the encoding
}

func newBlockEncoding(form Form, records []*Record) *blockEncoding {
	e := &blockEncoding{
		form: form,
		keys: make([]string, len(records)), revs: make([]int64, len(records)), ends: make([]uint32, len(records)),
	}
	for i, r := range records {
		e.keys[i], e.revs[i] = r.Key, r.Revision
	}
	return e
}

// build appends the encoded records to dst. It copies the encodings of unchanged records from
// former, which may be nil, and encodes the others with j.
func (e *blockEncoding) build(
	cache *encodingCache, j *Joiner, records []*Record, former *blockEncoding, dst []byte,
) ([]byte, error) {
	scratch := cache.buffer()
	defer cache.putBuffer(scratch)
	var old []byte
	if former != nil {
		if encoded, ok := former.decompress(cache, (*scratch)[:0]); ok {
			old, *scratch = encoded, encoded[:0]
		}
	}
	start, next := len(dst), 0
	for i, r := range records {
		if i > 0 {
			dst = append(dst, j.Separator...)
		}
		var known []byte
		if old != nil {
			known, next = former.item(old, next, r, len(j.Separator))
		}
		if known != nil {
			dst = append(dst, known...)
		} else {
			var err error
			if dst, err = j.Append(dst, r); err != nil {
				return nil, err
			}
		}
		e.ends[i] = uint32(len(dst) - start)
	}
	return dst, nil
}

// item returns the part of encoded that belongs to r, or nil if e does not contain this revision of
// r. The search starts at the given index of e.keys. The result next is the index where the search
// for the following record starts.
func (e *blockEncoding) item(encoded []byte, at int, r *Record, separator int) (part []byte, next int) {
	for at < len(e.keys) && e.keys[at] < r.Key {
		at++
	}
	if at == len(e.keys) || e.keys[at] != r.Key || e.revs[at] != r.Revision {
		return nil, at
	}
	from := 0
	if at > 0 {
		from = int(e.ends[at-1]) + separator
	}
	return encoded[from:e.ends[at]], at + 1
}

// decompress appends the encoded bytes to dst. It returns false if they have been dropped.
func (e *blockEncoding) decompress(cache *encodingCache, dst []byte) ([]byte, bool) {
	e.mu.Lock()
	compressed := e.compressed
	e.mu.Unlock()
	if compressed == nil {
		return dst, false
	}
	cache.touch(e)
	size := int(e.ends[len(e.ends)-1])
	dst = slices.Grow(dst, size)
	if _, err := s2.Decode(dst[len(dst):len(dst)+size], compressed); err != nil {
		return dst, false // unreachable: compress wrote these bytes
	}
	return dst[:len(dst)+size], true
}

func (e *blockEncoding) compress(cache *encodingCache, encoded []byte) {
	scratch := cache.buffer()
	defer cache.putBuffer(scratch)
	*scratch = s2.Encode((*scratch)[:cap(*scratch)], encoded)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.compressed = slices.Clone(*scratch)
}

// keptDeflated returns the part of a gzip response that keepDeflated has stored. It returns false
// if there is none or the encoded bytes have been dropped.
func (e *blockEncoding) keptDeflated(cache *encodingCache) (deflate.Piece, bool) {
	e.mu.Lock()
	d := e.deflated
	e.mu.Unlock()
	if d.Data == nil {
		return d, false
	}
	cache.touch(e)
	return d, true
}

// keepDeflated stores d with the encoding, unless the encoded bytes have been dropped or the cache
// has no room.
func (e *blockEncoding) keepDeflated(cache *encodingCache, d deflate.Piece) {
	if e.setDeflated(d) && !cache.hold(e) {
		e.setDeflated(deflate.Piece{})
		if !cache.hold(e) {
			e.drop()
		}
	}
}

func (e *blockEncoding) setDeflated(d deflate.Piece) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.compressed != nil {
		e.deflated = d
	}
	return e.compressed != nil
}

func (e *blockEncoding) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.compressed, e.deflated = nil, deflate.Piece{}
}

// bytes returns the approximate memory size of the encoding.
func (e *blockEncoding) bytes() int64 {
	const perRecord = 16 + 8 + 4 // for each record: a string header, a revision and an end
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.compressed)+len(e.deflated.Data)) + perRecord*int64(len(e.keys))
}
