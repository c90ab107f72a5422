// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"sync"

	"keelson.dev/apiserver/deflate"
)

// Block is a range of a resource's records in key order: at most 128 records and 256 KiB, or one
// larger record. Lists read whole blocks. The block keeps the encoding that a list makes of it. A
// write replaces the block by a copy with the changed record. Encoding the copy encodes only that
// record, and takes the other records' encodings from the old block.
//
// Invariant: the records of a block that a snapshot contains do not change. Its encodings do; the
// methods Encoded, Ends and Deflated are safe for concurrent use.
type Block struct {
	cache   *encodingCache
	records []*Record
	size    int    // total size of the stored bytes of records
	epoch   uint64 // epoch of the tree when the block was created

	mu sync.Mutex
	// encodings has one entry for each form. A change replaces the slice and does not modify its
	// elements.
	encodings []heldEncoding
}

// heldEncoding is an encoding of a block, or of the block from which it was copied.
type heldEncoding struct {
	*blockEncoding
	own bool // the encoding is of this block, not of the block from which this one was copied
}

func newBlock(cache *encodingCache, epoch uint64, records []*Record, size int) *Block {
	return &Block{cache: cache, records: records, size: size, epoch: epoch}
}

// find returns the index of the record with key in the block, or the index at which to insert it.
func (b *Block) find(key string) (int, bool) {
	i := sort.Search(len(b.records), func(i int) bool { return b.records[i].Key >= key })
	return i, i < len(b.records) && b.records[i].Key == key
}

// Len returns the number of records in the block.
func (b *Block) Len() int { return len(b.records) }

// clone returns a copy of the block that may be changed.
func (b *Block) clone(epoch uint64) *Block {
	records := make([]*Record, len(b.records), len(b.records)+4)
	copy(records, b.records)
	out := newBlock(b.cache, epoch, records, b.size)
	out.encodings = b.formerEncodings()
	return out
}

// formerEncodings returns the encodings of b, for a new block that replaces b.
func (b *Block) formerEncodings() []heldEncoding {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.encodings) == 0 {
		return nil
	}
	out := slices.Clone(b.encodings)
	for i := range out {
		out[i].own = false
	}
	return out
}

// large reports whether the block has so many records or bytes that it has to be split.
func (b *Block) large() bool {
	n := len(b.records)
	return n > 1 && (n > b.cache.blockRecords || b.size > b.cache.blockBytes)
}

// split divides the records of b into blocks that are not too large. appended reports whether the
// last record has just been added. If that record alone made b too large, it gets a block of its
// own, so that objects created in key order leave full blocks behind.
func (b *Block) split(appended bool) []*Block {
	last := len(b.records) - 1
	if left := b.size - b.records[last].size; appended && last <= b.cache.blockRecords && left <= b.cache.blockBytes {
		return b.cut(last, left)
	}
	at, left := 1, b.records[0].size
	for at < last && left+b.records[at].size <= b.size/2 {
		left += b.records[at].size
		at++
	}
	var out []*Block
	for _, half := range b.cut(at, left) {
		if half.large() {
			out = append(out, half.split(false)...)
			continue
		}
		out = append(out, half)
	}
	return out
}

// cut returns two blocks: the first has the records before the index at, and the second has the
// remaining records. The argument left is the total size of the records in the first block, in
// bytes.
func (b *Block) cut(at, left int) []*Block {
	former := b.formerEncodings()
	one := newBlock(b.cache, b.epoch, slices.Clone(b.records[:at]), left)
	two := newBlock(b.cache, b.epoch, slices.Clone(b.records[at:]), b.size-left)
	one.encodings, two.encodings = former, former
	return []*Block{one, two}
}

// Joiner encodes a block in one form: it joins the encoded records with a separator. Append must
// depend on the record and the form only, because the result is cached.
type Joiner struct {
	Form      Form
	Separator string
	Append    func(dst []byte, r *Record) ([]byte, error)
}

// Encoded appends the encoded records to dst. ends has the offset at which each record ends,
// relative to the end of dst before the call. Callers must not modify ends. An error comes from
// j.Append.
func (b *Block) Encoded(j *Joiner, dst []byte) (encoded []byte, ends []uint32, err error) {
	b.mu.Lock()
	e := b.encoding(j.Form)
	b.mu.Unlock()
	if e.own {
		if encoded, ok := e.decompress(b.cache, dst); ok {
			return encoded, e.ends, nil
		}
	}
	encoded, e.blockEncoding, err = b.encode(j, dst)
	if err != nil {
		return dst, nil, err
	}
	return encoded, e.ends, nil
}

// Ends returns the offset at which each encoded record ends, relative to the first byte that
// Encoded appends.
func (b *Block) Ends(j *Joiner) ([]uint32, error) {
	b.mu.Lock()
	e := b.encoding(j.Form)
	b.mu.Unlock()
	if e.own {
		return e.ends, nil
	}
	buf := b.cache.buffer()
	defer b.cache.putBuffer(buf)
	encoded, ends, err := b.Encoded(j, (*buf)[:0])
	*buf = encoded[:0]
	return ends, err
}

// encode encodes the block and caches the result, if there is room in the cache. Concurrent callers
// wait for the first one and use its result.
func (b *Block) encode(j *Joiner, dst []byte) ([]byte, *blockEncoding, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	former := b.encoding(j.Form)
	if former.own {
		if encoded, ok := former.decompress(b.cache, dst); ok { // another caller has just encoded it
			return encoded, former.blockEncoding, nil
		}
	}
	e := newBlockEncoding(j.Form, b.records)
	encoded, err := e.build(b.cache, j, b.records, former.blockEncoding, dst)
	if err != nil {
		return dst, nil, err
	}
	if b.cache.replace(former.blockEncoding) {
		e.compress(b.cache, encoded[len(dst):])
		if b.cache.hold(e) {
			b.keepLocked(e)
		}
	}
	return encoded, e, nil
}

// Deflated returns the encoded records compressed, as a part of a gzip response.
func (b *Block) Deflated(j *Joiner) (deflate.Piece, error) {
	b.mu.Lock()
	e := b.encoding(j.Form)
	b.mu.Unlock()
	if e.own {
		if d, ok := e.keptDeflated(b.cache); ok {
			return d, nil
		}
	}
	buf := b.cache.buffer()
	defer b.cache.putBuffer(buf)
	encoded, _, err := b.Encoded(j, (*buf)[:0])
	if err != nil {
		return deflate.Piece{}, err
	}
	*buf = encoded[:0]
	d := b.cache.deflate.Piece(encoded)
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.encoding(j.Form); e.own {
		e.keepDeflated(b.cache, d)
	}
	return d, nil
}

// encoding returns the block's encoding in form f, or the zero value. The caller holds b.mu.
func (b *Block) encoding(f Form) heldEncoding {
	for _, e := range b.encodings {
		if e.form == f {
			return e
		}
	}
	return heldEncoding{}
}

// keepLocked stores e and replaces the previous encoding in the same form. The caller holds b.mu.
func (b *Block) keepLocked(e *blockEncoding) {
	encodings := slices.Clone(b.encodings)
	encodings = slices.DeleteFunc(encodings, func(old heldEncoding) bool { return old.form == e.form })
	b.encodings = append(encodings, heldEncoding{e, true})
}

// Run is a range of a page: N records of Block, beginning at the block's record From. If Block is
// nil, the N records belong to no block.
type Run struct {
	Block   *Block
	From, N int
}
