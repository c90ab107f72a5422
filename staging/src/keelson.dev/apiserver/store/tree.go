// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"

	"github.com/google/btree"
)

const treeDegree = 32

// tree is an ordered set of records by key, of which readers take immutable
// snapshots. Its methods are called with the cache's lock held; what snapshot
// returns is read without.
type tree struct {
	t    *btree.BTreeG[*Record]
	snap *btree.BTreeG[*Record] // clone of t since its last change, if somebody needed one
}

func newTree() *tree {
	return &tree{t: btree.NewG(treeDegree, func(a, b *Record) bool { return a.Key < b.Key })}
}

// snapshot returns the present state, which later changes leave alone: they
// copy the few nodes they touch.
func (t *tree) snapshot() *btree.BTreeG[*Record] {
	if t.snap == nil {
		t.snap = t.t.Clone()
	}
	return t.snap
}

func (t *tree) get(key string) *Record {
	r, _ := t.t.Get(&Record{Key: key})
	return r
}

func (t *tree) put(r *Record) {
	t.snap = nil
	t.t.ReplaceOrInsert(r)
}

func (t *tree) delete(key string) {
	t.snap = nil
	t.t.Delete(&Record{Key: key})
}

// index finds records by the value of one field.
type index map[string]*tree

// move changes r's place from the value of prev to that of cur; either may be nil.
func (ix index) move(field string, prev, cur *Record) {
	if prev != nil && (cur == nil || prev.Fields[field] != cur.Fields[field]) {
		value := prev.Fields[field]
		if t := ix[value]; t != nil {
			t.delete(prev.Key)
			if t.t.Len() == 0 {
				delete(ix, value)
			}
		}
	}
	if cur != nil {
		value := cur.Fields[field]
		t := ix[value]
		if t == nil {
			t = newTree()
			ix[value] = t
		}
		t.put(cur)
	}
}

// namespaceOf is the namespace part of a key, empty for cluster-wide resources.
func namespaceOf(key string) string {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i]
	}
	return ""
}

// nameOf is the name part of a key.
func nameOf(key string) string { return key[strings.IndexByte(key, '/')+1:] }
