// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
)

// pack is the stored bytes of some records, compressed together: objects of one
// kind resemble each other more than anything resembles itself.
type pack struct {
	cache  *packs
	packed []byte
	ends   []uint32
}

// bytes returns a copy of the bytes of the record at index i.
func (p *pack) bytes(i int32) (out []byte) {
	p.use(i, func(data []byte) { out = bytes.Clone(data) })
	return out
}

// use calls f with the bytes of the record at index i.
func (p *pack) use(i int32, f func(data []byte)) {
	o := p.cache.open(p)
	defer p.cache.release(o)
	from := uint32(0)
	if i > 0 {
		from = p.ends[i-1]
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	f(o.text[from:p.ends[i]])
}

// share is what the record at index i contributes to the pack's size.
func (p *pack) share(size int) int64 {
	return int64(len(p.packed)) * int64(size) / int64(max(1, p.ends[len(p.ends)-1]))
}

// packs has the bytes of records packed when many have come: who writes or loads
// an object has its bytes at hand, and most objects are not touched for long. It
// remembers the packs opened last, because reads come in order.
type packs struct {
	// group is about how many bytes make a pack, and least from how many on it is
	// worth making one. After every many bytes that have come, blocks are looked
	// through.
	group, least, many int64

	loose   atomic.Int64 // bytes that have come since the last look
	wake    chan struct{}
	buffers sync.Pool // *packBuffers

	mu   sync.Mutex
	last []*opened // the latest first
}

// packBuffers is what making packs needs for a while.
type packBuffers struct{ text, packed []byte }

// opened is a pack with its text, for whose sake it is held while it is made.
type opened struct {
	pack  *pack // guarded by packs.mu
	users int   // guarded by packs.mu

	mu   sync.RWMutex
	text []byte
}

const (
	// opensKept is how many opened packs are remembered.
	opensKept = 64
	// blockPacks is over how many packs the records of a block may be spread.
	blockPacks = 12
)

func newPacks() *packs {
	return &packs{
		group: 64 << 10, least: 24 << 10, many: 8 << 20, wake: make(chan struct{}, 1),
		buffers: sync.Pool{New: func() any { return new(packBuffers) }},
	}
}

// came notes that records with n bytes have been made.
func (p *packs) came(n int) {
	if p.loose.Add(int64(n)) < p.many {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// open returns a pack opened, which is to be released.
func (p *packs) open(want *pack) *opened {
	p.mu.Lock()
	o, known := p.placeLocked(want)
	o.users++
	if known {
		p.mu.Unlock()
		return o
	}
	o.pack = want
	o.mu.Lock() // at once: nobody else uses it
	p.mu.Unlock()
	defer o.mu.Unlock()
	var err error
	if o.text, err = s2.Decode(o.text[:cap(o.text)], want.packed); err != nil {
		panic("store: a pack cannot be opened: " + err.Error()) // nobody writes what closeOne wrote
	}
	return o
}

func (p *packs) release(o *opened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.users--
}

// placeLocked returns where want is open, or else where it may be opened: a new
// place as long as there are few, or that which nobody has used for longest.
func (p *packs) placeLocked(want *pack) (o *opened, known bool) {
	at := slices.IndexFunc(p.last, func(o *opened) bool { return o.pack == want })
	known = at >= 0
	if !known {
		if at = len(p.last); at < opensKept {
			p.last = append(p.last, &opened{})
		} else if at = p.unusedLocked(); at < 0 {
			return &opened{}, false // for once
		}
	}
	o = p.last[at]
	copy(p.last[1:at+1], p.last[:at])
	p.last[0] = o
	return o, known
}

func (p *packs) unusedLocked() int {
	for at := len(p.last) - 1; at >= 0; at-- {
		if p.last[at].users == 0 {
			return at
		}
	}
	return -1
}

// close packs records, in their order. Those that do not become smaller stay loose
// and are not looked at again.
func (p *packs) close(records []*Record) {
	buf := p.buffers.Get().(*packBuffers)
	defer p.buffers.Put(buf)
	text := buf.text[:0]
	for from, i := 0, 0; i < len(records); i++ {
		text = append(text, records[i].Bytes()...)
		if int64(len(text)) >= p.group || i == len(records)-1 {
			buf.packed = s2.Encode(buf.packed[:cap(buf.packed)], text)
			p.closeOne(records[from:i+1], text, buf.packed)
			from, text = i+1, text[:0]
		}
	}
	if buf.text = text; cap(text) > 4*int(p.group) { // of an unusual object
		*buf = packBuffers{}
	}
}

// closeOne gives records their place in packed, which is text.
func (p *packs) closeOne(records []*Record, text, packed []byte) {
	if len(packed) > len(text)-len(text)/4 {
		for _, r := range records {
			r.stayLoose()
		}
		return
	}
	out := &pack{cache: p, packed: slices.Clone(packed), ends: make([]uint32, len(records))}
	end := uint32(0)
	for i, r := range records {
		end += uint32(r.size)
		out.ends[i] = end
	}
	for i, r := range records {
		r.move(out, int32(i))
	}
}

// block packs what is loose in a block, or all of it when it has become spread
// over too many packs.
func (p *packs) block(records []*Record) {
	var loose []*Record
	var size int64
	var before *pack
	spread := 0
	for _, r := range records {
		in, isLoose := r.packedIn()
		if isLoose {
			loose = append(loose, r)
			size += int64(r.size)
		} else if in != before {
			before = in
			spread++
		}
	}
	switch {
	case size < p.least || len(loose) == 0:
	case spread > blockPacks:
		p.close(slices.DeleteFunc(slices.Clone(records), (*Record).staysLoose))
	default:
		p.close(loose)
	}
}

// runPacking packs the bytes of records as more come.
func (b *Backend) runPacking(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.packs.wake:
		}
		b.packs.loose.Store(0)
		var caches []*cache
		b.mu.RLock()
		b.all(func(c *cache) { caches = append(caches, c) })
		b.mu.RUnlock()
		for _, c := range caches {
			c.pack()
		}
	}
}

// pack packs what is loose of the present state, and the former states that the
// window has kept since the last time.
func (c *cache) pack() {
	c.mu.Lock()
	if c.state != ready {
		c.mu.Unlock()
		return
	}
	present := c.records.snapshot()
	from, end := max(c.window.packed, c.window.first), c.window.end()
	former := make([]*Record, 0, end-from)
	for pos := from; pos < end; pos++ {
		if prev := c.window.at(pos).prev; prev != nil {
			if _, loose := prev.packedIn(); loose {
				former = append(former, prev)
			}
		}
	}
	c.mu.Unlock()
	for _, b := range present.list {
		c.b.packs.block(b.records)
	}
	c.b.packs.close(former)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.weigh(from, end)
}
