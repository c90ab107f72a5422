// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
)

// patience is how long a write is waited for before the cache is believed without it.
const patience = 5 * time.Minute

// Expectations remember, by key, the writes of a controller that its cache does
// not show yet. While there are some, what the cache shows must not be counted:
// it would be made good twice. They are safe for concurrent use.
type Expectations struct {
	clock clock.Clock
	mu    sync.Mutex
	byKey map[string]*expected
}

type expected struct {
	creates int
	deletes map[types.UID]struct{}
	since   time.Time
}

// NewExpectations returns none.
func NewExpectations(c clock.Clock) *Expectations {
	return &Expectations{clock: c, byKey: map[string]*expected{}}
}

// Creates notes n creations to come, or (n negative) that so many will not.
func (e *Expectations) Creates(key string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(key).creates += n
	e.tidy(key)
}

// Deletes notes a deletion to come.
func (e *Expectations) Deletes(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(key).deletes[uid] = struct{}{}
}

// Created tells of a creation seen.
func (e *Expectations) Created(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byKey[key]; x != nil && x.creates > 0 {
		x.creates--
		e.tidy(key)
	}
}

// Deleted tells of a deletion seen, or that it will not come.
func (e *Expectations) Deleted(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byKey[key]; x != nil {
		delete(x.deletes, uid)
		e.tidy(key)
	}
}

// Met tells whether the cache shows all that was written, or it was waited for long enough.
func (e *Expectations) Met(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byKey[key]
	if x != nil && e.clock.Since(x.since) > patience {
		delete(e.byKey, key)
		return true
	}
	return x == nil
}

// Forget drops what is expected of a key that is gone.
func (e *Expectations) Forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byKey, key)
}

func (e *Expectations) of(key string) *expected {
	x := e.byKey[key]
	if x == nil {
		x = &expected{deletes: map[types.UID]struct{}{}}
		e.byKey[key] = x
	}
	x.since = e.clock.Now()
	return x
}

func (e *Expectations) tidy(key string) {
	if x := e.byKey[key]; x.creates <= 0 && len(x.deletes) == 0 {
		delete(e.byKey, key)
	}
}
