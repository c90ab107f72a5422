// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
)

// packer compresses the stored bytes of records into packedBytes. It works in the background, each
// time wakeBytes bytes have been written or loaded. Watchers and lists read new objects soon after
// the write, so the packer does not compress their bytes at once. Later, most objects are seldom
// read.
//
// Invariant: at most unpackedKept uncompressed groups are kept, each of about groupBytes bytes.
// They are the most recently used ones, because a list reads records in the order in which they
// were packed.
type packer struct {
	groupBytes int64 // about how many bytes are compressed together
	minBytes   int64 // the packer skips blocks with fewer unpacked bytes
	wakeBytes  int64 // number of new bytes after which the packer runs

	newBytes atomic.Int64 // number of bytes written or loaded since the last run
	wake     chan struct{}
	buffers  sync.Pool // pool of *packBuffers

	mu   sync.Mutex
	kept []*unpacked // the most recently used one first
}

// packBuffers are the buffers for packing one group: for compressing the stored bytes of several
// records together.
type packBuffers struct{ plain, compressed []byte }

// unpacked has the uncompressed bytes of a packedBytes. Its mu is locked for writing while a
// goroutine uncompresses them.
type unpacked struct {
	of    *packedBytes // guarded by packer.mu
	users int          // guarded by packer.mu; plain is not overwritten while users is greater than 0

	mu    sync.RWMutex
	plain []byte // the uncompressed bytes
}

const (
	// unpackedKept is how many uncompressed groups of records are kept; together they take about
	// 4 MiB.
	unpackedKept = 64
	// maxSpread is the maximum number of compressed pieces (values of type packedBytes) that hold the
	// records of one block. A list of the block uncompresses all of these pieces.
	maxSpread = 12
)

func newPacker() *packer {
	return &packer{
		groupBytes: 64 << 10, minBytes: 24 << 10, wakeBytes: 8 << 20, wake: make(chan struct{}, 1),
		buffers: sync.Pool{New: func() any { return new(packBuffers) }},
	}
}

// added counts n bytes of new records, and wakes runPacking when there are enough of them.
func (p *packer) added(n int) {
	if p.newBytes.Add(int64(n)) < p.wakeBytes {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// unpack returns the uncompressed bytes of want. The caller must release them after use.
func (p *packer) unpack(want *packedBytes) *unpacked {
	p.mu.Lock()
	u, known := p.slotLocked(want)
	u.users++
	if known {
		p.mu.Unlock()
		return u
	}
	u.of = want
	u.mu.Lock() // does not block: u has no other user yet
	p.mu.Unlock()
	defer u.mu.Unlock()
	var err error
	if u.plain, err = s2.Decode(u.plain[:cap(u.plain)], want.compressed); err != nil {
		panic("store: packed bytes cannot be uncompressed: " + err.Error()) // packGroup wrote the bytes
	}
	return u
}

func (p *packer) release(u *unpacked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.users--
}

// slotLocked returns the uncompressed bytes of want if they are kept. Otherwise known is false, and
// the result is a slot for them: a new one until unpackedKept are kept, and after that the least
// recently used one without users. If all slots have users, it is a new one that is not kept.
func (p *packer) slotLocked(want *packedBytes) (u *unpacked, known bool) {
	at := slices.IndexFunc(p.kept, func(u *unpacked) bool { return u.of == want })
	known = at >= 0
	if !known {
		if at = len(p.kept); at < unpackedKept {
			p.kept = append(p.kept, &unpacked{})
		} else if at = p.lastUnusedLocked(); at < 0 {
			return &unpacked{}, false
		}
	}
	u = p.kept[at]
	copy(p.kept[1:at+1], p.kept[:at])
	p.kept[0] = u
	return u, known
}

// lastUnusedLocked returns the index of the least recently used entry of kept that has no users, or
// -1.
func (p *packer) lastUnusedLocked() int {
	for at := len(p.kept) - 1; at >= 0; at-- {
		if p.kept[at].users == 0 {
			return at
		}
	}
	return -1
}

// pack compresses the stored bytes of records, in this order, in groups of about groupBytes.
func (p *packer) pack(records []*Record) {
	buf := p.buffers.Get().(*packBuffers)
	defer p.buffers.Put(buf)
	plain := buf.plain[:0]
	for from, i := 0, 0; i < len(records); i++ {
		plain = append(plain, records[i].Bytes()...)
		if int64(len(plain)) >= p.groupBytes || i == len(records)-1 {
			buf.compressed = s2.Encode(buf.compressed[:cap(buf.compressed)], plain)
			p.packGroup(records[from:i+1], plain, buf.compressed)
			from, plain = i+1, plain[:0]
		}
	}
	if buf.plain = plain; cap(plain) > 4*int(p.groupBytes) { // an unusual object made the buffer large
		*buf = packBuffers{}
	}
}

// packGroup replaces the bytes of records by compressed, the compressed form of plain, which is
// their joined bytes. If compression saves less than a quarter, the records keep their bytes and
// are marked as incompressible.
func (p *packer) packGroup(records []*Record, plain, compressed []byte) {
	if len(compressed) > len(plain)-len(plain)/4 {
		for _, r := range records {
			r.markIncompressible()
		}
		return
	}
	out := &packedBytes{packer: p, compressed: slices.Clone(compressed), ends: make([]uint32, len(records))}
	end := uint32(0)
	for i, r := range records {
		end += uint32(r.size)
		out.ends[i] = end
	}
	for i, r := range records {
		r.moveTo(out, int32(i))
	}
}

// packBlock packs the unpacked records of a block. If the records are spread over too many
// packedBytes, it packs all of them again.
func (p *packer) packBlock(records []*Record) {
	var unpacked []*Record
	var size int64
	var before *packedBytes
	spread := 0
	for _, r := range records {
		in, packable := r.packedIn()
		if packable {
			unpacked = append(unpacked, r)
			size += int64(r.size)
		} else if in != before {
			before = in
			spread++
		}
	}
	switch {
	case size < p.minBytes || len(unpacked) == 0:
	case spread > maxSpread:
		p.pack(slices.DeleteFunc(slices.Clone(records), (*Record).isIncompressible))
	default:
		p.pack(unpacked)
	}
}

// runPacking packs the records of all caches whenever enough new bytes have been written or loaded,
// until ctx is done.
func (b *Backend) runPacking(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.packer.wake:
		}
		b.packer.newBytes.Store(0)
		for _, c := range b.caches.all() {
			c.packRecords()
		}
	}
}

// packRecords packs unpacked records of the present state, and the previous states in changes that
// the window has added since the last call.
func (c *cache) packRecords() {
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
			if _, packable := prev.packedIn(); packable {
				former = append(former, prev)
			}
		}
	}
	c.mu.Unlock()
	for _, b := range present.list {
		c.b.packer.packBlock(b.records)
	}
	c.b.packer.pack(former)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.weigh(from, end)
}
