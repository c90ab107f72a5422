// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

// index holds the records of a resource by the value of one field.
//
// Invariant: each record of the cache is in the tree of its value; no tree is empty. cache.mu
// guards it.
type index map[string]*tree

// fill adds records, which are sorted by key, to an empty index.
func (ix index) fill(cache *encodingCache, field string, records []*Record) {
	byValue := map[string][]*Record{}
	for _, r := range records {
		value := r.Fields[field]
		byValue[value] = append(byValue[value], r)
	}
	for value, of := range byValue {
		ix[value] = newTree(cache)
		ix[value].fill(of)
	}
}

// move replaces prev by cur, the previous and the new record of one object. Either may be nil.
func (ix index) move(cache *encodingCache, field string, prev, cur *Record) {
	if prev != nil && (cur == nil || prev.Fields[field] != cur.Fields[field]) {
		value := prev.Fields[field]
		if t := ix[value]; t != nil {
			t.delete(prev.Key)
			if t.n == 0 {
				delete(ix, value)
			}
		}
	}
	if cur != nil {
		value := cur.Fields[field]
		t := ix[value]
		if t == nil {
			t = newTree(cache)
			ix[value] = t
		}
		t.put(cur)
	}
}
