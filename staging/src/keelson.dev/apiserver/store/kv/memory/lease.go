// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"slices"
	"time"
)

// expireLocked notes when key ends, and sets the timer if it is the first to.
func (s *Store) expireLocked(key string, at time.Time) {
	s.expiry[key] = at
	s.armLocked(at)
}

func (s *Store) armLocked(at time.Time) {
	if s.timer != nil && !s.timerAt.IsZero() && !at.Before(s.timerAt) {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timerAt = at
	s.timer = s.clock.AfterFunc(at.Sub(s.clock.Now()), s.expire)
}

// expire removes all keys whose time has come, at one revision as etcd does
// with the keys of a lease, and in key order so that runs are repeatable.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.timerAt = time.Time{}
	now := s.clock.Now()
	var due []string
	var next time.Time
	for key, at := range s.expiry {
		if !at.After(now) {
			due = append(due, key)
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if len(due) > 0 {
		slices.Sort(due)
		s.rev++
		for _, key := range due {
			s.deleteLocked(s.getLocked(key))
		}
		s.wakeLocked()
	}
	if !next.IsZero() {
		s.armLocked(next)
	}
}
