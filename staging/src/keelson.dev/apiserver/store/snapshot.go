// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"

	"github.com/google/btree"
)

// snapshot is an immutable state of a resource, or of the part of it that an
// index has found.
type snapshot struct {
	rev     int64
	records *btree.BTreeG[*Record]
	// undo takes back what happened after rev: the state before by key, nil where
	// there was none. Nil for the present.
	undo map[string]*Record
}

// snapshotLocked returns the present state as far as it concerns m.
func (c *cache) snapshotLocked(m *matcher) snapshot {
	s := snapshot{rev: c.reachedLocked()}
	if t := c.treeLocked(m); t != nil {
		s.records = t.snapshot()
	} else {
		s.records = newTree().t
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

// pastLocked returns the state at an earlier revision, if the window reaches
// back that far: the present one with the later changes taken back. That costs
// as much as has happened since, and nothing to keep.
func (c *cache) pastLocked(m *matcher, rev int64) (snapshot, bool) {
	if rev < c.window.floor {
		return snapshot{}, false
	}
	s := c.snapshotLocked(m)
	if rev >= s.rev {
		return s, true
	}
	s.rev = rev
	s.undo = map[string]*Record{}
	for pos, first := c.window.end(), c.window.after(rev); pos > first; pos-- {
		ch := c.window.at(pos - 1)
		s.undo[ch.key()] = ch.prev
	}
	return s, true
}

// ascend calls yield for all records from key start on, in order, until it
// returns false or the records no longer begin with prefix.
func (s *snapshot) ascend(prefix, start string, yield func(*Record) bool) {
	from := max(prefix, start)
	undone := s.undone(prefix, from)
	more := true
	s.records.AscendGreaterOrEqual(&Record{Key: from}, func(r *Record) bool {
		if !strings.HasPrefix(r.Key, prefix) {
			return false
		}
		for more && len(undone) > 0 && undone[0].Key < r.Key {
			more = yield(undone[0])
			undone = undone[1:]
		}
		if _, changed := s.undo[r.Key]; changed {
			return more // its former state is among the undone, if it had one
		}
		more = more && yield(r)
		return more
	})
	for more && len(undone) > 0 {
		more = yield(undone[0])
		undone = undone[1:]
	}
}

// undone is the former states in order.
func (s *snapshot) undone(prefix, from string) []*Record {
	if len(s.undo) == 0 {
		return nil
	}
	out := make([]*Record, 0, len(s.undo))
	for _, r := range s.undo {
		if r != nil && r.Key >= from && strings.HasPrefix(r.Key, prefix) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *Record) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// collect returns all records that match.
func (s *snapshot) collect(m *matcher) []*Record {
	var out []*Record
	if !m.selective() && m.namespace == "" {
		out = make([]*Record, 0, s.records.Len())
	}
	s.ascend(m.prefix(), "", func(r *Record) bool {
		if m.matches(r) {
			out = append(out, r)
		}
		return true
	})
	return out
}
