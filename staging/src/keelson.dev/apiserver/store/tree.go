// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"strings"
)

// tree is a set of records ordered by key, in blocks. Readers take immutable snapshots of it.
// cache.mu guards the tree; snapshots are read without a lock.
//
// Invariant: no block is empty, and keys increase from block to block. A block that a snapshot may
// contain does not change; it is replaced by a changed copy. Blocks made after the last snapshot
// have the tree's epoch and are changed in place.
type tree struct {
	cache  *encodingCache
	blocks []*Block
	epoch  uint64 // number of snapshots so far
	shared bool   // whether a snapshot refers to the slice blocks
	n      int    // number of records
}

// blocks is an immutable state of a tree: a list of blocks that have n records in total.
type blocks struct {
	list []*Block
	n    int
}

func newTree(cache *encodingCache) *tree { return &tree{cache: cache} }

// fill adds records, which are in key order, to an empty tree.
func (t *tree) fill(records []*Record) {
	from, size := 0, 0
	cut := func(to int) {
		t.edit(len(t.blocks), 0, newBlock(t.cache, t.epoch, slices.Clone(records[from:to]), size))
		from, size = to, 0
	}
	for i, r := range records {
		if i > from && (i-from >= t.cache.blockRecords || size+r.size > t.cache.blockBytes) {
			cut(i)
		}
		size += r.size
	}
	if from < len(records) {
		cut(len(records))
	}
	t.n = len(records)
}

// snapshot returns the present state of the tree. Later changes do not affect it.
func (t *tree) snapshot() blocks {
	if !t.shared {
		t.shared = true
		t.epoch++
	}
	return blocks{t.blocks, t.n}
}

// findBlock returns the index of the block that contains key or would contain it.
func findBlock(list []*Block, key string) int {
	return max(0, sort.Search(len(list), func(i int) bool { return list[i].records[0].Key > key })-1)
}

func (t *tree) get(key string) *Record {
	if len(t.blocks) == 0 {
		return nil
	}
	b := t.blocks[findBlock(t.blocks, key)]
	if i, ok := b.find(key); ok {
		return b.records[i]
	}
	return nil
}

func (t *tree) put(r *Record) {
	if len(t.blocks) == 0 {
		t.edit(0, 0, newBlock(t.cache, t.epoch, []*Record{r}, r.size))
		t.n = 1
		return
	}
	at := findBlock(t.blocks, r.Key)
	i, found := t.blocks[at].find(r.Key)
	b := t.writable(at)
	if found {
		b.size += r.size - b.records[i].size
		b.records[i] = r
	} else {
		b.size += r.size
		b.records = slices.Insert(b.records, i, r)
		t.n++
	}
	if b.large() {
		t.edit(at, 1, b.split(i == len(b.records)-1 && !found)...)
	}
}

func (t *tree) delete(key string) {
	if len(t.blocks) == 0 {
		return
	}
	at := findBlock(t.blocks, key)
	i, found := t.blocks[at].find(key)
	if !found {
		return
	}
	t.n--
	if len(t.blocks[at].records) == 1 {
		t.edit(at, 1)
		return
	}
	b := t.writable(at)
	b.size -= b.records[i].size
	b.records = slices.Delete(b.records, i, i+1)
	t.join(at)
}

// join merges a block (a sorted list of records) with a neighbour if both are small.
func (t *tree) join(at int) {
	small := func(b *Block) bool { return len(b.records) <= t.cache.blockRecords/4 && b.size <= t.cache.blockBytes/4 }
	if !small(t.blocks[at]) {
		return
	}
	if at+1 == len(t.blocks) {
		at--
	}
	if at < 0 || !small(t.blocks[at]) || !small(t.blocks[at+1]) {
		return
	}
	next := t.blocks[at+1]
	b := t.writable(at)
	b.records = append(b.records, next.records...)
	b.size += next.size
	t.edit(at+1, 1)
}

// writable returns the block at the given index if it may be changed in place. Otherwise it
// replaces the block by a copy, and returns the copy.
func (t *tree) writable(at int) *Block {
	b := t.blocks[at]
	if b.epoch == t.epoch {
		return b
	}
	b = b.clone(t.epoch)
	t.edit(at, 1, b)
	return b
}

// edit replaces n blocks, beginning with the block at the given index, by other blocks. It first
// copies the slice if a snapshot refers to it.
func (t *tree) edit(at, n int, with ...*Block) {
	if t.shared {
		t.blocks, t.shared = slices.Clone(t.blocks), false
	}
	t.blocks = slices.Replace(t.blocks, at, at+n, with...)
}

// ascend calls yield for all records, in order, whose keys begin with prefix and are not less than
// the second argument, until yield returns false. Each call gets n records of block b, beginning at
// index i.
func (s blocks) ascend(prefix, from string, yield func(b *Block, i, n int) bool) {
	from = max(prefix, from)
	if len(s.list) == 0 {
		return
	}
	for _, b := range s.list[findBlock(s.list, from):] {
		first, _ := b.find(from)
		last := len(b.records)
		if !strings.HasPrefix(b.records[last-1].Key, prefix) {
			last = first + sort.Search(last-first,
				func(i int) bool { return !strings.HasPrefix(b.records[first+i].Key, prefix) })
		}
		if last > first && !yield(b, first, last-first) {
			return
		}
		if last < len(b.records) {
			return
		}
	}
}

// namespaceOf returns the namespace part of a key; empty for cluster-wide resources.
func namespaceOf(key string) string {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i]
	}
	return ""
}

// nameOf returns the name part of a key.
func nameOf(key string) string { return key[strings.IndexByte(key, '/')+1:] }
