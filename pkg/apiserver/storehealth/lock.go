// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"context"
	"encoding/json"
	"fmt"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
)

// staleAfter is the number of attempts to acquire a lock, one in each maintenance interval, after which
// a holder that did not release it is considered dead. With the default interval, this takes 20 minutes, which
// is longer than the defragmentation of a database of 8 GiB.
const staleAfter = 40

// lock is a lock on a key of the database. It needs no clock that is the same on all servers, and no
// etcd lease, because etcd grants no lease when it has no space.
type lock struct {
	kv          kv.Store
	key, holder string

	revision  int64 // ModRevision of the key at the last attempt
	unchanged int   // number of attempts in which the key had this revision, and another holder
}

// lockValue is the value of the key of a lock. Holder is empty while the lock is free.
type lockValue struct {
	Holder string `json:"holder"`
}

// holding says whether a server may work after an attempt to acquire a lock.
type holding int

const (
	elsewhere holding = iota // another server holds the lock
	unwritten                // no other server held the lock, but etcd has no space to write it
	held                     // no other server can get the lock
)

// acquire tries to get the lock. A server that has died and started again gets its own lock at once. If
// the lock is unwritten, several servers may work at the same time.
func (l *lock) acquire(ctx context.Context) (holding, error) {
	item, _, err := l.kv.Get(ctx, l.key)
	if err != nil {
		return elsewhere, err
	}
	var expect int64
	if item != nil {
		expect = item.ModRevision
		var value lockValue
		if err := json.Unmarshal(item.Value, &value); err != nil {
			return elsewhere, fmt.Errorf("key %s: %w", l.key, err)
		}
		if value.Holder != "" && value.Holder != l.holder && !l.stale(expect) {
			return elsewhere, nil
		}
	}
	ok, err := l.write(ctx, lockValue{Holder: l.holder}, expect)
	switch {
	case etcd.IsNoSpace(err):
		return unwritten, nil
	case err != nil || !ok:
		return elsewhere, err
	}
	return held, nil
}

// stale records that another server holds the lock, and reports whether it has done so for too long.
func (l *lock) stale(revision int64) bool {
	if l.revision != revision {
		l.revision, l.unchanged = revision, 0
	}
	l.unchanged++
	return l.unchanged > staleAfter
}

// release frees the lock if this server holds it.
func (l *lock) release(ctx context.Context) error {
	item, _, err := l.kv.Get(ctx, l.key)
	if err != nil || item == nil {
		return err
	}
	var value lockValue
	if err := json.Unmarshal(item.Value, &value); err != nil || value.Holder != l.holder {
		return err
	}
	_, err = l.write(ctx, lockValue{}, item.ModRevision)
	return err
}

func (l *lock) write(ctx context.Context, value lockValue, expect int64) (bool, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return false, err
	}
	res, err := l.kv.Put(ctx, l.key, data, expect, 0)
	return res.OK, err
}
