// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"container/list"
	"sync"
	"weak"

	"keelson.dev/apiserver/deflate"
)

// encodingCache bounds the memory of the encodings of all blocks. It drops the least recently used
// encoding, but only if the others have since been used encodingRounds times each, on average. A
// plain least-recently-used cache does not work when clients list everything repeatedly, in the
// same order, and the encodings do not fit: it drops each encoding just before it is needed. This
// cache keeps the same part of the encodings instead.
//
// Invariant: spent is the sum of the sizes of the entries in order, and is at most max. Entries
// refer to encodings weakly: when a block is garbage, its encodings are too.
type encodingCache struct {
	// A block is split when it has more than blockRecords records, or when it has several records
	// with more than blockBytes bytes together.
	blockRecords, blockBytes int

	max     int64     // bytes
	buffers sync.Pool // pool of *[]byte, for encodings of blocks
	deflate *deflate.Pool

	mu    sync.Mutex
	spent int64
	uses  uint64    // counts uses of encodings
	order list.List // list of *cachedEncoding, the least recently used at the back
}

type cachedEncoding struct {
	encoding weak.Pointer[blockEncoding]
	bytes    int64
	used     uint64 // value of encodingCache.uses at the last use of this encoding
}

// encodingRounds determines when the cache may drop an encoding to make room: since its last use,
// the other encodings must have been used this many times on average.
const encodingRounds = 4

// newEncodingCache returns a cache of at most limit bytes.
func newEncodingCache(limit int64) *encodingCache {
	return &encodingCache{
		blockRecords: 128, blockBytes: 256 << 10, max: limit,
		buffers: sync.Pool{New: func() any { return new([]byte) }}, deflate: deflate.NewPool(),
	}
}

func (c *encodingCache) buffer() *[]byte { return c.buffers.Get().(*[]byte) }

// putBuffer returns a buffer to the pool, unless an unusual object has made it large.
func (c *encodingCache) putBuffer(b *[]byte) {
	if cap(*b) <= 8*c.blockBytes {
		c.buffers.Put(b)
	}
}

// touch records a use of e.
func (c *encodingCache) touch(e *blockEncoding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	if e.place != nil {
		e.place.Value.(*cachedEncoding).used = c.uses
		c.order.MoveToFront(e.place)
	}
}

// replace removes former, which may be nil, to make room for the encoding that replaces it. It
// reports whether hold will probably accept the new encoding, so that compressing it is worthwhile.
func (c *encodingCache) replace(former *blockEncoding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses++
	if former != nil && former.place != nil {
		c.removeLocked(former.place)
		former.place = nil
	}
	return c.spent < c.max-c.max/16 || c.droppableLocked()
}

// droppableLocked reports whether the least recently used encoding may be dropped.
func (c *encodingCache) droppableLocked() bool {
	back := c.order.Back()
	if back == nil {
		return false
	}
	e := back.Value.(*cachedEncoding)
	return e.encoding.Value() == nil || c.uses-e.used > encodingRounds*uint64(c.order.Len())
}

// hold counts the present size of e as used memory, and drops other encodings if necessary. It
// returns false, and does not count e, if e does not fit.
func (c *encodingCache) hold(e *blockEncoding) bool {
	drop, ok := c.account(e, e.bytes())
	for _, old := range drop {
		old.drop()
	}
	return ok
}

func (c *encodingCache) account(e *blockEncoding, bytes int64) (drop []*blockEncoding, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.place != nil {
		c.removeLocked(e.place)
		e.place = nil
	}
	for c.spent+bytes > c.max {
		if !c.droppableLocked() {
			return drop, false
		}
		back := c.order.Back()
		if old := back.Value.(*cachedEncoding).encoding.Value(); old != nil {
			old.place = nil
			drop = append(drop, old)
		}
		c.removeLocked(back)
	}
	e.place = c.order.PushFront(&cachedEncoding{encoding: weak.Make(e), bytes: bytes, used: c.uses})
	c.spent += bytes
	return drop, true
}

func (c *encodingCache) removeLocked(e *list.Element) {
	c.spent -= c.order.Remove(e).(*cachedEncoding).bytes
}
