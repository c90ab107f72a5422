// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/api/clock"
)

// patience is how long a write is waited for before the cache is believed without it.
const patience = 5 * time.Minute

// Expectations remember, by key, the writes of a controller that its cache does
// not show yet. While there are some, what the cache shows must not be counted:
// it would be made good twice. What is waited for is known by its UID: a cache that
// is being filled, or a creation whose answer was lost, shows objects that nobody
// waits for. They are safe for concurrent use.
type Expectations struct {
	clock clock.Clock
	mu    sync.Mutex
	byKey map[string]*expected
	// names are those of objects whose creation had no answer, by key and slot. They are
	// used for the next creations: one that did take effect is not repeated so.
	names map[string]map[string][]string
	// owners are the objects that the keys stood for when they were last asked about.
	owners map[string]types.UID
}

type expected struct {
	// calls are creations whose answer has not come; early are the objects that
	// were seen meanwhile, of which one may be what a call has made.
	calls int
	early sets.Set[types.UID]
	// creates are objects that were made and not seen, deletes those to be seen to go.
	creates, deletes sets.Set[types.UID]
	since            time.Time
}

// NewExpectations returns none.
func NewExpectations(c clock.Clock) *Expectations {
	return &Expectations{clock: c, byKey: map[string]*expected{}, names: map[string]map[string][]string{}, owners: map[string]types.UID{}}
}

// Create makes n objects in Batches, and has each of them expected; one without a UID is shown
// by the cache already. It returns how many were made. That nothing is made in a namespace which
// goes is no error: the owner goes with it.
func (e *Expectations) Create(key string, n int, create func(i int) (types.UID, error)) (int, error) {
	e.calling(key, n)
	made, err := Batches(n, func(i int) error {
		uid, err := create(i)
		if err == nil {
			e.created(key, uid)
		}
		return err
	})
	e.calling(key, made-n)
	if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return made, nil
	}
	return made, err
}

// calling notes n more creations on their way, or (n negative) that so many failed.
func (e *Expectations) calling(key string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > 0 {
		e.of(key).calls += n
	} else if x := e.byKey[key]; x != nil {
		x.calls += n
		e.tidy(key)
	}
}

// created notes what a creation has made.
func (e *Expectations) created(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byKey[key]
	if x == nil {
		return // forgotten, with its key
	}
	x.calls--
	if uid != "" && !x.early.Has(uid) {
		x.creates.Insert(uid)
	}
	e.tidy(key)
}

// Deletes notes a deletion to come.
func (e *Expectations) Deletes(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of(key).deletes.Insert(uid)
}

// Created tells of an object that is seen for the first time.
func (e *Expectations) Created(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byKey[key]
	if x == nil {
		return
	}
	x.creates.Delete(uid)
	if x.calls > 0 {
		x.early.Insert(uid)
	}
	e.tidy(key)
}

// Deleted tells of a deletion seen, or that it will not come.
func (e *Expectations) Deleted(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byKey[key]; x != nil {
		x.deletes.Delete(uid)
		e.tidy(key)
	}
}

// Met reports whether the cache shows all that was written for owner, the object of the key,
// or was waited for long enough. It drops what is expected of an earlier object of that key:
// the pods of that one are not the new owner's, so no event would meet the expectation.
func (e *Expectations) Met(key string, owner types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owners[key] != owner {
		if e.owners[key] != "" {
			delete(e.byKey, key)
			delete(e.names, key)
		}
		e.owners[key] = owner
	}
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
	delete(e.names, key)
	delete(e.owners, key)
}

func (e *Expectations) of(key string) *expected {
	x := e.byKey[key]
	if x == nil {
		x = &expected{early: sets.New[types.UID](), creates: sets.New[types.UID](), deletes: sets.New[types.UID]()}
		e.byKey[key] = x
	}
	x.since = e.clock.Now()
	return x
}

// tidy forgets what is not needed any more. The caller has the lock.
func (e *Expectations) tidy(key string) {
	x := e.byKey[key]
	if x.calls > 0 {
		return
	}
	x.early.Clear()
	if len(x.creates)+len(x.deletes) == 0 {
		delete(e.byKey, key)
	}
}
