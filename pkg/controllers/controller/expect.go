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

// ExpectationTimeout is how long a controller waits for the cache to show a write. After that time
// the controller uses the cache even if the cache does not show the write: the object may have been
// deleted before the cache showed it. A controller whose expectations are not met must sync the owner
// again after this time, because there may be no event.
const ExpectationTimeout = 5 * time.Minute

// Expectations record a controller's own writes that its cache does not show yet, by the key of the
// owner that the objects were written for. While there are such writes, the controller must not
// count the owner's objects in the cache, because it would create or delete too many. Written
// objects are identified by UID, because the cache may also report objects that the controller did
// not just create: objects from before the controller started, and an object whose create had no
// response. Expectations are safe for concurrent use.
type Expectations struct {
	clock clock.Clock
	mu    sync.Mutex
	byKey map[string]*pendingWrites
	// names are the names of objects whose create had no response, by the owner's key and by slot
	// (see keepName). The next creates use these names, so that an object that does exist is not
	// created a second time.
	names map[string]map[string][]string
	// owners are the UIDs that the owners had when Met was last called, by key.
	owners map[string]types.UID
}

// pendingWrites are the writes for one owner that the cache does not show yet.
type pendingWrites struct {
	// calls is the number of creates in progress. seenDuringCalls are objects that the cache first
	// showed during these calls; each may be the result of one of the calls.
	calls           int
	seenDuringCalls sets.Set[types.UID]
	// The fields created and deleting have the objects whose creation or deletion the cache does
	// not show yet. The field since is the time of the last write.
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

// Create calls create n times with RunBatches and expects the cache to show each UID that create
// returns. The function create returns an empty UID for an object that the cache shows already.
// Create returns the number of objects created. It ignores the API server's error that the
// namespace is terminating, because then the owner will be deleted too.
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

// addCalls records that n creates are about to start. If n is negative, it records that -n of them
// did not succeed.
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

// recordCreated records that a create returned uid. uid is empty if the cache shows the object
// already.
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

// ExpectDeletion records that the controller is about to delete an object, so that Met waits until
// the cache shows the deletion.
func (e *Expectations) ExpectDeletion(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.entry(key).deleting.Insert(uid)
}

// Created records that the cache shows an object for the first time. The handler of informer events
// calls it.
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

// Deleted records that the cache shows the deletion of an object, or that the controller's request
// to delete it failed.
func (e *Expectations) Deleted(key string, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.byKey[key]; x != nil {
		x.deleting.Delete(uid)
		e.prune(key)
	}
}

// Met reports whether the cache shows all writes for the owner with the given key and UID. It also
// returns true if the last write is at least ExpectationTimeout ago. If an earlier object had the
// same key and another UID, Met first drops that object's expectations: its pods do not belong to
// the new owner, so no event would ever remove them.
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
	if x != nil && e.clock.Since(x.since) >= ExpectationTimeout {
		delete(e.byKey, key)
		return true
	}
	return x == nil
}

// Forget drops the expectations for a key. Controllers call it when the object with the key was
// deleted.
func (e *Expectations) Forget(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byKey, key)
	delete(e.names, key)
	delete(e.owners, key)
}

// entry returns the pending writes for a key, which it creates if there are none, and restarts
// their timeout. The caller holds e.mu.
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

// prune drops the entry for a key if no writes are pending any more. The caller holds e.mu.
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

// keepName records the name of an object that may have been created for key, because its create had
// no response. A slot is a group of objects of the same key that can replace each other: takeName
// returns the name only for the same slot.
func (e *Expectations) keepName(key, slot, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names[key] == nil {
		e.names[key] = map[string][]string{}
	}
	e.names[key][slot] = append(e.names[key][slot], name)
}

// takeName removes and returns a name that keepName recorded for the slot, or returns "" if there
// is none.
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

// dropNames drops the recorded names for which exists returns true.
func (e *Expectations) dropNames(key string, exists func(name string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot, list := range e.names[key] {
		e.setNames(key, slot, slices.DeleteFunc(list, exists))
	}
}

// setNames replaces the recorded names of a slot. The caller holds e.mu.
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
