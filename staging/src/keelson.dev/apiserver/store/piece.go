// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"container/list"
	"slices"
	"sync"
	"weak"

	"github.com/klauspost/compress/s2"

	"keelson.dev/apiserver/deflate"
)

// piece is the text of a block in one form, compressed. What it was made of is
// named by key and revision, so that a successor of the block finds in it what has
// not changed.
type piece struct {
	form Form
	keys []string
	revs []int64
	ends []uint32

	mu     sync.Mutex
	packed []byte // nil: dropped
	zipped deflate.Piece

	place *list.Element // guarded by pieceCache.mu; nil: not accounted for
}

func newPiece(form Form, records []*Record) *piece {
	p := &piece{form: form, keys: make([]string, len(records)), revs: make([]int64, len(records)), ends: make([]uint32, len(records))}
	for i, r := range records {
		p.keys[i], p.revs[i] = r.Key, r.Revision
	}
	return p
}

// join appends the text of records to dst: what former has of them, and of the
// others what j makes.
func (p *piece) join(cache *pieceCache, j *Joiner, records []*Record, former *piece, dst []byte) ([]byte, error) {
	scratch := cache.buffer()
	defer cache.putBuffer(scratch)
	var old []byte
	if former != nil {
		if text, ok := former.text(cache, (*scratch)[:0]); ok {
			old, *scratch = text, text[:0]
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
		p.ends[i] = uint32(len(dst) - start)
	}
	return dst, nil
}

// item returns the text of r, if p has it, and where to look for the records after it.
func (p *piece) item(text []byte, at int, r *Record, separator int) ([]byte, int) {
	for at < len(p.keys) && p.keys[at] < r.Key {
		at++
	}
	if at == len(p.keys) || p.keys[at] != r.Key || p.revs[at] != r.Revision {
		return nil, at
	}
	from := 0
	if at > 0 {
		from = int(p.ends[at-1]) + separator
	}
	return text[from:p.ends[at]], at + 1
}

// text appends what is kept to dst, if it is.
func (p *piece) text(cache *pieceCache, dst []byte) ([]byte, bool) {
	p.mu.Lock()
	packed := p.packed
	p.mu.Unlock()
	if packed == nil {
		return dst, false
	}
	cache.use(p)
	size := int(p.ends[len(p.ends)-1])
	dst = slices.Grow(dst, size)
	if _, err := s2.Decode(dst[len(dst):len(dst)+size], packed); err != nil {
		return dst, false // not reached: nobody else writes what pack wrote
	}
	return dst[:len(dst)+size], true
}

func (p *piece) pack(cache *pieceCache, text []byte) {
	scratch := cache.buffer()
	defer cache.putBuffer(scratch)
	*scratch = s2.Encode((*scratch)[:cap(*scratch)], text)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packed = slices.Clone(*scratch)
}

func (p *piece) deflated(cache *pieceCache) (deflate.Piece, bool) {
	p.mu.Lock()
	d := p.zipped
	p.mu.Unlock()
	if d.Data == nil {
		return d, false
	}
	cache.use(p)
	return d, true
}

// setDeflated keeps d, unless p has been dropped, or there is no room.
func (p *piece) setDeflated(cache *pieceCache, d deflate.Piece) {
	if p.zip(d) && !cache.hold(p) {
		p.zip(deflate.Piece{})
		if !cache.hold(p) {
			p.drop()
		}
	}
}

func (p *piece) zip(d deflate.Piece) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.packed != nil {
		p.zipped = d
	}
	return p.packed != nil
}

func (p *piece) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packed, p.zipped = nil, deflate.Piece{}
}

func (p *piece) weight() int64 {
	const each = 16 + 8 + 4
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.packed)+len(p.zipped.Data)) + each*int64(len(p.keys))
}

// pieceCache bounds what blocks keep. The least recently used goes first, but not
// what has been used in the last few rounds over everything: what is larger than
// the cache is read in order, again and again, and then keeping the same part of
// it beats keeping what was read last. References are weak: a block that nobody
// holds any more takes its pieces with it.
type pieceCache struct {
	// A block is split when it has more than blockRecords records, or more than
	// blockBytes of data in more than one.
	blockRecords, blockBytes int

	max     int64
	buffers sync.Pool // *[]byte, for texts of blocks
	deflate *deflate.Pool

	mu    sync.Mutex
	spent int64
	uses  uint64
	order list.List // of cachedPiece, the least recently used at the back
}

type cachedPiece struct {
	piece weak.Pointer[piece]
	bytes int64
	used  uint64
}

// pieceRounds is after how many uses of everything else a piece may go.
const pieceRounds = 4

func newPieceCache(max int64) *pieceCache {
	return &pieceCache{
		blockRecords: 128, blockBytes: 256 << 10, max: max,
		buffers: sync.Pool{New: func() any { return new([]byte) }}, deflate: deflate.NewPool(),
	}
}

func (c *pieceCache) buffer() *[]byte { return c.buffers.Get().(*[]byte) }

// putBuffer takes a buffer back; one that an unusual object has made large is not kept.
func (c *pieceCache) putBuffer(b *[]byte) {
	if cap(*b) <= 8*c.blockBytes {
		c.buffers.Put(b)
	}
}

// use notes that p has been read.
func (c *pieceCache) use(p *piece) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	if p.place != nil {
		p.place.Value.(*cachedPiece).used = c.uses
		c.order.MoveToFront(p.place)
	}
}

// admit reports whether it is worth packing a new piece, which takes the place of
// former: hold is likely to take it.
func (c *pieceCache) admit(former *piece) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	if former != nil && former.place != nil {
		c.removeLocked(former.place)
		former.place = nil
	}
	return c.spent < c.max-c.max/16 || c.idleLocked()
}

// idleLocked reports whether the piece at the back may go.
func (c *pieceCache) idleLocked() bool {
	back := c.order.Back()
	if back == nil {
		return false
	}
	e := back.Value.(*cachedPiece)
	return e.piece.Value() == nil || c.uses-e.used > pieceRounds*uint64(c.order.Len())
}

// hold takes p as it is now into account. It reports false when there is no room.
func (c *pieceCache) hold(p *piece) bool {
	drop, ok := c.account(p, p.weight())
	for _, old := range drop {
		old.drop()
	}
	return ok
}

func (c *pieceCache) account(p *piece, bytes int64) (drop []*piece, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.place != nil {
		c.removeLocked(p.place)
		p.place = nil
	}
	for c.spent+bytes > c.max {
		if !c.idleLocked() {
			return drop, false
		}
		back := c.order.Back()
		if old := back.Value.(*cachedPiece).piece.Value(); old != nil {
			old.place = nil
			drop = append(drop, old)
		}
		c.removeLocked(back)
	}
	p.place = c.order.PushFront(&cachedPiece{piece: weak.Make(p), bytes: bytes, used: c.uses})
	c.spent += bytes
	return drop, true
}

func (c *pieceCache) removeLocked(e *list.Element) {
	c.spent -= c.order.Remove(e).(*cachedPiece).bytes
}
