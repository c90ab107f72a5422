// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"sort"
	"strings"
)

// snapshot is an immutable state of a resource, or of the part of it that an
// index has found.
type snapshot struct {
	rev     int64
	records blocks
	// undo takes back what happened after rev: the state before by key, nil where
	// there was none. Nil for the present.
	undo map[string]*Record
}

// snapshotLocked returns the present state as far as it concerns m.
func (c *cache) snapshotLocked(m *matcher) snapshot {
	s := snapshot{rev: c.reachedLocked()}
	if t := c.treeLocked(m); t != nil {
		s.records = t.snapshot()
	}
	return s
}

// treeLocked is the smallest tree that holds all that m may match; nil if none does.
func (c *cache) treeLocked(m *matcher) *tree {
	if f, v, ok := m.indexed(c.fields); ok {
		return c.indexes[f][v]
	}
	return c.records
}

// pastLocked returns the current state and the changes since rev, oldest first, from which the
// caller can restore the state at rev. It returns false if the window does not reach back that far.
// The cost is proportional to the number of these changes; no old states are kept.
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

// takeBack takes back changes to keys with a prefix; changes is sorted oldest first. The caller
// holds no lock, because there may be many changes.
func (s *snapshot) takeBack(changes []*change, prefix string) {
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

// ascend calls yield for stretches of the records whose keys are not before start
// and begin with prefix, in order, until it returns false. A stretch is part of
// block b from index from on, or, where b is nil, of none.
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
		former := s.take(changed[:here], records)
		changed = changed[here:]
		more = len(former) == 0 || yield(nil, 0, former)
		return more
	})
	if rest := s.take(changed, nil); more && len(rest) > 0 {
		yield(nil, 0, rest)
	}
}

// changed is the keys whose state was another one, in order.
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

// take returns records with the former states of changed keys put in.
func (s *snapshot) take(changed []string, records []*Record) []*Record {
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
