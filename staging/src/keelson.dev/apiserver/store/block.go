// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"sync"

	"keelson.dev/apiserver/deflate"
)

// Block is a stretch of a resource's records in key order. Lists read blocks as a
// whole: what they make of one is kept with it, compressed, until a record of the
// block changes; and then only that record is encoded again.
//
// A block that somebody outside of this package has is immutable but for that.
type Block struct {
	cache   *pieceCache
	records []*Record
	size    int    // of their data
	epoch   uint64 // of the tree when it was made

	mu     sync.Mutex
	pieces []heldPiece // the slice is replaced, its elements are not changed
}

// heldPiece is a piece of a block, or of the block that it was made of.
type heldPiece struct {
	*piece
	own bool
}

func newBlock(cache *pieceCache, epoch uint64, records []*Record, size int) *Block {
	return &Block{cache: cache, records: records, size: size, epoch: epoch}
}

// find returns the index of key, or where it would be.
func (b *Block) find(key string) (int, bool) {
	i := sort.Search(len(b.records), func(i int) bool { return b.records[i].Key >= key })
	return i, i < len(b.records) && b.records[i].Key == key
}

// Len is the number of the block's records.
func (b *Block) Len() int { return len(b.records) }

// clone returns a copy that may be changed.
func (b *Block) clone(epoch uint64) *Block {
	records := make([]*Record, len(b.records), len(b.records)+4)
	copy(records, b.records)
	out := newBlock(b.cache, epoch, records, b.size)
	out.pieces = b.formerPieces()
	return out
}

// formerPieces is the block's pieces as a successor has them.
func (b *Block) formerPieces() []heldPiece {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pieces) == 0 {
		return nil
	}
	out := slices.Clone(b.pieces)
	for i := range out {
		out[i].own = false
	}
	return out
}

// large reports whether the block has to be split.
func (b *Block) large() bool {
	n := len(b.records)
	return n > 1 && (n > b.cache.blockRecords || b.size > b.cache.blockBytes)
}

// split makes blocks of one that is too large, two if these are not. When the last record has just
// been added and is what made it so it goes alone, and objects made in order fill blocks.
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

func (b *Block) cut(at, left int) []*Block {
	former := b.formerPieces()
	one := newBlock(b.cache, b.epoch, slices.Clone(b.records[:at]), left)
	two := newBlock(b.cache, b.epoch, slices.Clone(b.records[at:]), b.size-left)
	one.pieces, two.pieces = former, former
	return []*Block{one, two}
}

// Joiner makes the text of a block in one form: each record's, with a separator
// between them. What it appends depends on the record and the form alone.
type Joiner struct {
	Form      Form
	Separator string
	Append    func(dst []byte, r *Record) ([]byte, error)
}

// Text appends the block's records to dst. ends are where each record's text ends,
// counted from the end of dst as it was; callers do not modify them.
func (b *Block) Text(j *Joiner, dst []byte) (text []byte, ends []uint32, err error) {
	b.mu.Lock()
	p := b.piece(j.Form)
	b.mu.Unlock()
	if p.own {
		if text, ok := p.text(b.cache, dst); ok {
			return text, p.ends, nil
		}
	}
	text, p.piece, err = b.make(j, dst)
	if err != nil {
		return dst, nil, err
	}
	return text, p.ends, nil
}

// Ends returns where each record's text ends in the block's.
func (b *Block) Ends(j *Joiner) ([]uint32, error) {
	b.mu.Lock()
	p := b.piece(j.Form)
	b.mu.Unlock()
	if p.own {
		return p.ends, nil
	}
	buf := b.cache.buffer()
	defer b.cache.putBuffer(buf)
	text, ends, err := b.Text(j, (*buf)[:0])
	*buf = text[:0]
	return ends, err
}

// make joins the text, for all who need it to take from what is kept.
func (b *Block) make(j *Joiner, dst []byte) ([]byte, *piece, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	former := b.piece(j.Form)
	if former.own {
		if text, ok := former.text(b.cache, dst); ok { // somebody else has just made it
			return text, former.piece, nil
		}
	}
	p := newPiece(j.Form, b.records)
	text, err := p.join(b.cache, j, b.records, former.piece, dst)
	if err != nil {
		return dst, nil, err
	}
	if b.cache.admit(former.piece) {
		p.pack(b.cache, text[len(dst):])
		if b.cache.hold(p) {
			b.keep(p)
		}
	}
	return text, p, nil
}

// Deflated is the block's text as a piece of a deflate stream.
func (b *Block) Deflated(j *Joiner) (deflate.Piece, error) {
	b.mu.Lock()
	p := b.piece(j.Form)
	b.mu.Unlock()
	if p.own {
		if d, ok := p.deflated(b.cache); ok {
			return d, nil
		}
	}
	buf := b.cache.buffer()
	defer b.cache.putBuffer(buf)
	text, _, err := b.Text(j, (*buf)[:0])
	if err != nil {
		return deflate.Piece{}, err
	}
	*buf = text[:0]
	d := b.cache.deflate.Piece(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.piece(j.Form); p.own {
		p.setDeflated(b.cache, d)
	}
	return d, nil
}

// piece returns what there is in form f.
func (b *Block) piece(f Form) heldPiece {
	for _, p := range b.pieces {
		if p.form == f {
			return p
		}
	}
	return heldPiece{}
}

// keep puts p in the place of the piece of its form.
func (b *Block) keep(p *piece) {
	pieces := slices.Clone(b.pieces)
	pieces = slices.DeleteFunc(pieces, func(old heldPiece) bool { return old.form == p.form })
	b.pieces = append(pieces, heldPiece{p, true})
}

// Run is a stretch of a page: N records from index From of a block on, or, where
// Block is nil, N records that stand alone.
type Run struct {
	Block   *Block
	From, N int
}
