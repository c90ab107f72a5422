// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"slices"
	"time"
)

// endLocked makes key expire at the given time.
func (s *Store) endLocked(key string, at time.Time) {
	s.expiry[key] = at
	if s.due.IsZero() || at.Before(s.due) {
		s.armLocked(at)
	}
}

// armLocked sets the timer for the next key that expires. Only watches need it, because every
// operation removes expired keys first. The timer's function may run under the lock of a fake
// clock, so it starts a goroutine.
func (s *Store) armLocked(at time.Time) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.due = at
	s.timer = s.clock.AfterFunc(at.Sub(s.clock.Now()), func() { go s.expire() })
}

func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.expireLocked()
	}
}

// expireLocked removes all expired keys in key order, so that runs are repeatable. They are removed
// at one revision, like the keys of an etcd lease.
func (s *Store) expireLocked() {
	if s.due.IsZero() {
		return
	}
	now := s.clock.Now()
	if now.Before(s.due) {
		return
	}
	s.due = time.Time{}
	var ended []string
	var next time.Time
	for key, at := range s.expiry {
		if !at.After(now) {
			ended = append(ended, key)
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if len(ended) > 0 {
		slices.Sort(ended)
		s.rev++
		for _, key := range ended {
			s.deleteLocked(s.getLocked(key))
		}
		s.wakeLocked()
	}
	if !next.IsZero() {
		s.armLocked(next)
	}
}
