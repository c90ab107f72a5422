// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"strings"
)

// snapshot is an immutable state of a resource, or of the part of it that is in one tree of an
// index.
type snapshot struct {
	rev     int64
	records blocks
	// undo maps the key of each object that changed after rev to the object's state at rev, which
	// is nil if the object did not exist. undo itself is nil for the present state.
	undo map[string]*Record
	// broken reports whether some records of the resource cannot be decrypted or decoded.
	broken bool
}

// snapshotLocked returns the present state of all records that m may match.
func (c *cache) snapshotLocked(m *matcher) snapshot {
	s := snapshot{rev: c.reachedLocked(), broken: len(c.unreadable) > 0}
	if t := c.treeLocked(m); t != nil {
		s.records = t.snapshot()
	}
	return s
}

// treeLocked returns the smallest tree that contains all records that m may match, or nil if there
// are no such records.
func (c *cache) treeLocked(m *matcher) *tree {
	if f, v, ok := m.indexed(c.fields); ok {
		return c.indexes[f][v]
	}
	return c.records
}

// pastLocked returns the current state and the changes since rev, oldest first. By undoing these
// changes, the caller can restore the state at rev. It returns false if the window does not contain
// all of them. The cost is proportional to their number; the cache keeps no old states.
func (c *cache) pastLocked(m *matcher, rev int64) (snapshot, []*change, bool) {
	if rev < c.window.floor {
		return snapshot{}, nil, false
	}
	s := c.snapshotLocked(m)
	if rev >= s.rev {
		return s, nil, true
	}
	s.rev = rev
	return s, slices.Clone(c.window.since(rev)), true
}

// undoChanges turns s into the state before changes, which are sorted oldest first. It considers
// only keys that begin with prefix. The caller should hold no lock, because there may be many
// changes.
func (s *snapshot) undoChanges(changes []*change, prefix string) {
	if len(changes) == 0 {
		return
	}
	s.undo = map[string]*Record{}
	for _, ch := range slices.Backward(changes) {
		if key := ch.key(); strings.HasPrefix(key, prefix) {
			s.undo[key] = ch.prev
		}
	}
}

// ascend calls yield for all records, in key order, whose keys begin with prefix and are not less
// than start, until yield returns false. The records of each call are a range of block b; the
// argument from is the index of the first of them in the block. The block is nil if they differ
// from the block because of an undone change.
func (s *snapshot) ascend(prefix, start string, yield func(b *Block, from int, records []*Record) bool) {
	if len(s.undo) == 0 {
		s.records.ascend(prefix, start, func(b *Block, i, n int) bool { return yield(b, i, b.records[i:i+n]) })
		return
	}
	changed := s.changed(prefix, max(prefix, start))
	more := true
	s.records.ascend(prefix, start, func(b *Block, i, n int) bool {
		records := b.records[i : i+n]
		last := records[n-1].Key
		here := sort.Search(len(changed), func(i int) bool { return changed[i] > last })
		if here == 0 {
			return yield(b, i, records)
		}
		former := s.restore(changed[:here], records)
		changed = changed[here:]
		more = len(former) == 0 || yield(nil, 0, former)
		return more
	})
	if rest := s.restore(changed, nil); more && len(rest) > 0 {
		yield(nil, 0, rest)
	}
}

// changed returns the keys in undo that begin with prefix and are not less than the second
// argument, in order.
func (s *snapshot) changed(prefix, from string) []string {
	var out []string
	for key := range s.undo {
		if key >= from && strings.HasPrefix(key, prefix) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// restore returns records, with the objects whose keys are in changed replaced by their state at
// s.rev.
func (s *snapshot) restore(changed []string, records []*Record) []*Record {
	out := make([]*Record, 0, len(records)+len(changed))
	for _, key := range changed {
		for len(records) > 0 && records[0].Key < key {
			out, records = append(out, records[0]), records[1:]
		}
		if len(records) > 0 && records[0].Key == key {
			records = records[1:]
		}
		if former := s.undo[key]; former != nil {
			out = append(out, former)
		}
	}
	return append(out, records...)
}
