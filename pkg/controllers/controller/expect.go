// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/api/clock"
)

// expectationTimeout is how long to wait until the cache shows a write. After that the controller
// relies on the cache even if it does not show the write.
const expectationTimeout = 5 * time.Minute

// Expectations record, by key, a controller's own writes that its cache does not show yet. While
// there are such writes, the controller must not count the objects in the cache, because it would
// create or delete objects twice. Objects are identified by UID, because a cache also shows objects
// that are not expected: while it is being filled, and after a create whose response was lost.
// Expectations are safe for concurrent use.
type Expectations struct {
	clock clock.Clock
	mu    sync.Mutex
	byKey map[string]*pendingWrites
	// names are the names of objects whose create had no response, by key and slot. The next
	// creates use these names, so that an object that does exist is not created a second time.
	names map[string]map[string][]string
	// owners are the UIDs of the objects that had the keys when Met was last called.
	owners map[string]types.UID
}

// pendingWrites are the writes for one key that the cache does not show yet.
type pendingWrites struct {
	// calls is the number of creates in progress. seenDuringCalls are objects that the cache first
	// showed during these calls; each may be the result of one of the calls.
	calls           int
	seenDuringCalls sets.Set[types.UID]
	// created and deleting are objects whose creation or deletion the cache does not show yet.
	created, deleting sets.Set[types.UID]
	since             time.Time
}

// NewExpectations returns empty expectations.
func NewExpectations(c clock.Clock) *Expectations {
	return &Expectations{
		clock: c, byKey: map[string]*pendingWrites{}, names: map[string]map[string][]string{},
		owners: map[string]types.UID{},
	}
}

// Create calls create n times with RunBatches and expects the cache to show each returned UID. An
// empty UID stands for an object that the cache shows already. It returns the number of objects
// created. It ignores the error that a namespace is terminating, because then the owner will be
// deleted too.
func (e *Expectations) Create(key string, n int, create func(i int) (types.UID, error)) (int, error) {
	e.addCalls(key, n)
	made, err := RunBatches(n, func(i int) error {
		uid, err := create(i)
		if err == nil {
			e.recordCreated(key, uid)
		}
		return err
	})
	e.addCalls(key, made-n)
	if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		return made, nil
	}
	return made, err
}

// addCalls records that n creates start or, if n is negative, that -n of them failed.
func (e *Expectations) addCalls(key string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > 0 {
		e.entry(key).calls += n
	} else if x := e.byKey[key]; x != nil {
		x.calls += n
		e.prune(key)
	}
}

// recordCreated records that a create succeeded.
func (e *Expectations) recordCreated(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byKey[key]
	if x == nil {
		return // Forget was called meanwhile
	}
	x.calls--
	if uid != "" && !x.seenDuringCalls.Has(uid) {
		x.created.Insert(uid)
	}
	e.prune(key)
}

// ExpectDeletion records that the controller is about to delete an object.
func (e *Expectations) ExpectDeletion(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.entry(key).deleting.Insert(uid)
}

// Created records that the cache shows an object for the first time.
func (e *Expectations) Created(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byKey[key]
	if x == nil {
		return
	}
	x.created.Delete(uid)
	if x.calls > 0 {
		x.seenDuringCalls.Insert(uid)
	}
	e.prune(key)
}

// Deleted records that the cache shows the deletion of an object, or that the delete failed.
func (e *Expectations) Deleted(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byKey[key]; x != nil {
		x.deleting.Delete(uid)
		e.prune(key)
	}
}

// Met reports whether the cache shows all writes for owner, the object with the key, or whether
// they have timed out. It drops the expectations for an earlier object with the same key: the pods
// of the earlier object do not belong to the new owner, so no event would ever remove them.
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
	if x != nil && e.clock.Since(x.since) > expectationTimeout {
		delete(e.byKey, key)
		return true
	}
	return x == nil
}

// Forget drops the expectations for a key whose object was deleted.
func (e *Expectations) Forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byKey, key)
	delete(e.names, key)
	delete(e.owners, key)
}

// entry returns the pending writes for a key and restarts their timeout. The caller holds the
// lock.
func (e *Expectations) entry(key string) *pendingWrites {
	x := e.byKey[key]
	if x == nil {
		x = &pendingWrites{
			seenDuringCalls: sets.New[types.UID](), created: sets.New[types.UID](), deleting: sets.New[types.UID](),
		}
		e.byKey[key] = x
	}
	x.since = e.clock.Now()
	return x
}

// prune deletes what is no longer needed for a key. The caller holds the lock.
func (e *Expectations) prune(key string) {
	x := e.byKey[key]
	if x.calls > 0 {
		return
	}
	x.seenDuringCalls.Clear()
	if len(x.created)+len(x.deleting) == 0 {
		delete(e.byKey, key)
	}
}

// keepName records the name of an object that may have been created for key. Objects of the key
// that can replace each other have the same slot.
func (e *Expectations) keepName(key, slot, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names[key] == nil {
		e.names[key] = map[string][]string{}
	}
	e.names[key][slot] = append(e.names[key][slot], name)
}

// takeName removes and returns a name that was recorded for the slot, or returns "".
func (e *Expectations) takeName(key, slot string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.names[key][slot]
	if len(list) == 0 {
		return ""
	}
	e.setNames(key, slot, list[1:])
	return list[0]
}

// dropNames forgets the recorded names for which exists returns true.
func (e *Expectations) dropNames(key string, exists func(name string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot, list := range e.names[key] {
		e.setNames(key, slot, slices.DeleteFunc(list, exists))
	}
}

// setNames replaces the names of a slot. The caller holds the lock.
func (e *Expectations) setNames(key, slot string, list []string) {
	if len(list) > 0 {
		e.names[key][slot] = list
		return
	}
	delete(e.names[key], slot)
	if len(e.names[key]) == 0 {
		delete(e.names, key)
	}
}
