// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory implements kv.Store in memory, for simulation and tests. It is deterministic: the
// same calls in the same order give the same revisions, and keys expire by the clock passed to New.
// Nothing survives the process.
package memory

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

const degree = 32 // degree of the B-tree

// entry is one write in the log since the last compaction. Watches read the log, and reads of a
// past state undo its entries.
type entry struct {
	kv.Event
	prev *kv.Item // state before the write; nil if the key was absent
}

// Store is a kv.Store in memory. New makes one. It is safe for concurrent use.
type Store struct {
	clock clock.Clock

	mu     sync.Mutex // guards the fields below
	closed bool

	// The present state, and the writes that led to it.

	items     *btree.BTreeG[kv.Item]
	rev       int64
	log       []entry       // in revision order
	compacted int64         // states before this revision cannot be read
	changed   chan struct{} // closed by the next write

	// Keys that expire.

	expiry map[string]time.Time
	due    time.Time // when the first key expires; zero if none does
	timer  interface{ Stop() bool }
}

var _ kv.Store = (*Store)(nil)

// New returns an empty store at revision 1, like that of etcd.
func New(clock clock.Clock) *Store {
	return &Store{
		clock:   clock,
		items:   btree.NewG(degree, func(a, b kv.Item) bool { return a.Key < b.Key }),
		rev:     1,
		changed: make(chan struct{}),
		expiry:  map[string]time.Time{},
	}
}

// Close ends all watches and timers.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.wakeLocked()
	return nil
}

// Get implements kv.Store.
func (s *Store) Get(ctx context.Context, key string) (*kv.Item, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return nil, 0, err
	}
	return s.getLocked(key), s.rev, nil
}

// Revision implements kv.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rev, s.usableLocked(ctx)
}

// Put implements kv.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return kv.WriteResult{}, err
	}
	cur := s.getLocked(key)
	if modRevision(cur) != expect || slices.ContainsFunc(conditions, s.brokenLocked) {
		return kv.WriteResult{Revision: s.rev, Current: cur}, nil
	}
	s.rev++
	s.setLocked(key, value, cur)
	if ttl > 0 {
		s.endLocked(key, s.clock.Now().Add(time.Duration(ttl)*time.Second))
	}
	s.wakeLocked()
	return kv.WriteResult{OK: true, Revision: s.rev}, nil
}

// Delete implements kv.Store.
func (s *Store) Delete(ctx context.Context, key string, expect int64) (kv.WriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return kv.WriteResult{}, err
	}
	cur := s.getLocked(key)
	if cur == nil || cur.ModRevision != expect {
		return kv.WriteResult{Revision: s.rev, Current: cur}, nil
	}
	s.rev++
	s.deleteLocked(cur)
	s.wakeLocked()
	return kv.WriteResult{OK: true, Revision: s.rev}, nil
}

// WriteAll implements kv.Store.
func (s *Store) WriteAll(ctx context.Context, changes []kv.Change) (kv.WriteResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return kv.WriteResult{}, err
	}
	before := make([]*kv.Item, len(changes))
	for i, c := range changes {
		before[i] = s.getLocked(c.Key)
		if before[i] == nil || before[i].ModRevision != c.Expect {
			return kv.WriteResult{Revision: s.rev}, nil
		}
	}
	s.rev++
	for i, c := range changes {
		if c.Delete {
			s.deleteLocked(before[i])
		} else {
			s.setLocked(c.Key, c.Value, before[i])
		}
	}
	s.wakeLocked()
	return kv.WriteResult{OK: true, Revision: s.rev}, nil
}

// Compact implements kv.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return err
	}
	if revision <= s.compacted {
		return kv.ErrCompacted
	}
	if revision > s.rev {
		return kv.ErrFutureRevision
	}
	s.compacted = revision
	// As in etcd, the state at revision itself stays readable.
	n := sort.Search(len(s.log), func(i int) bool { return s.log[i].ModRevision > revision })
	s.log = append([]entry(nil), s.log[n:]...)
	return nil
}

// Range implements kv.Store.
func (s *Store) Range(ctx context.Context, opts kv.RangeOptions) (kv.RangeResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return kv.RangeResult{}, err
	}
	items := s.items
	switch {
	case opts.Revision > s.rev:
		return kv.RangeResult{}, kv.ErrFutureRevision
	case opts.Revision != 0 && opts.Revision < s.compacted:
		return kv.RangeResult{}, kv.ErrCompacted
	case opts.Revision != 0 && opts.Revision < s.rev:
		items = s.pastLocked(opts.Revision)
	}
	res := kv.RangeResult{Revision: s.rev}
	items.AscendGreaterOrEqual(kv.Item{Key: max(opts.Prefix, opts.Start)}, func(it kv.Item) bool {
		if !strings.HasPrefix(it.Key, opts.Prefix) {
			return false
		}
		res.Count++
		if opts.Limit == 0 || int64(len(res.Items)) < opts.Limit {
			res.Items = append(res.Items, it)
		}
		return true
	})
	return res, nil
}

// pastLocked returns the state at an earlier revision: the present one with the later writes
// undone.
func (s *Store) pastLocked(rev int64) *btree.BTreeG[kv.Item] {
	items := s.items.Clone()
	for i := len(s.log) - 1; i >= 0 && s.log[i].ModRevision > rev; i-- {
		if prev := s.log[i].prev; prev != nil {
			items.ReplaceOrInsert(*prev)
		} else {
			items.Delete(kv.Item{Key: s.log[i].Key})
		}
	}
	return items
}

// usableLocked prepares an operation: it removes expired keys, and returns an error if the store is
// closed or ctx has ended.
func (s *Store) usableLocked(ctx context.Context) error {
	if s.closed {
		return kv.ErrClosed
	}
	s.expireLocked()
	return ctx.Err()
}

func (s *Store) getLocked(key string) *kv.Item {
	if it, ok := s.items.Get(kv.Item{Key: key}); ok {
		return &it
	}
	return nil
}

// brokenLocked reports whether a condition does not hold.
func (s *Store) brokenLocked(c kv.Unchanged) bool {
	cur := s.getLocked(c.Key)
	return cur == nil || cur.ModRevision != c.Revision
}

// setLocked replaces the item cur, which may be nil, by a new value that does not expire.
func (s *Store) setLocked(key string, value []byte, cur *kv.Item) {
	item := kv.Item{Key: key, Value: value, ModRevision: s.rev}
	s.items.ReplaceOrInsert(item)
	s.log = append(s.log, entry{Event: kv.Event{Item: item}, prev: cur})
	delete(s.expiry, key)
}

func (s *Store) deleteLocked(cur *kv.Item) {
	s.items.Delete(*cur)
	delete(s.expiry, cur.Key)
	s.log = append(s.log, entry{
		Event: kv.Event{Item: kv.Item{Key: cur.Key, ModRevision: s.rev}, Deleted: true},
		prev:  cur,
	})
}

// wakeLocked wakes all watches.
func (s *Store) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func modRevision(it *kv.Item) int64 {
	if it == nil {
		return 0
	}
	return it.ModRevision
}
