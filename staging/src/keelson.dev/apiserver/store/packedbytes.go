// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "bytes"

// packedBytes holds the stored bytes of some records, compressed together. Objects of one kind
// resemble each other, so together they compress much better than one by one.
//
// Invariant: it is immutable, and ends[i]-ends[i-1] is the size of record i. It is freed with the
// last of its records.
type packedBytes struct {
	packer     *packer
	compressed []byte
	ends       []uint32 // where each record's bytes end in the uncompressed bytes
}

// bytes returns a copy of the stored bytes of record i.
func (p *packedBytes) bytes(i int32) (out []byte) {
	p.use(i, func(data []byte) { out = bytes.Clone(data) })
	return out
}

// use calls f with the stored bytes of record i. They are valid until f returns.
func (p *packedBytes) use(i int32, f func(data []byte)) {
	u := p.packer.unpack(p)
	defer p.packer.release(u)
	from := uint32(0)
	if i > 0 {
		from = p.ends[i-1]
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	f(u.plain[from:p.ends[i]])
}

// share returns the part of the compressed size that is attributed to a record with size stored
// bytes.
func (p *packedBytes) share(size int) int64 {
	return int64(len(p.compressed)) * int64(size) / int64(max(1, p.ends[len(p.ends)-1]))
}
