// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kv is the key-value store below the store of API objects: etcd's model, reduced to what
// that store needs. kv/etcd (an external cluster, or embedded in the process) and kv/memory
// implement it. kv/kvtest is the suite of tests that every implementation passes.
//
// Invariants:
//   - Revisions belong to the whole store. The revision of a successful write is greater than that of
//     every write that was acknowledged before it. A key's ModRevision is that of its last write.
//   - An expired lease deletes all of its keys at one revision. WriteAll makes all its changes at one
//     revision. Writes of a Group that are made together have one revision, with each key at most once.
//   - Get, Put, Delete and Revision are linearizable.
//   - A watch delivers events in revision order, without gap or repetition, and never splits the
//     events of one revision over two batches.
package kv

import (
	"context"
	"errors"
)

var (
	// ErrCompacted says that the requested revision has been compacted.
	ErrCompacted = errors.New("required revision has been compacted")
	// ErrFutureRevision says that the requested revision does not exist yet.
	ErrFutureRevision = errors.New("required revision is a future revision")
	// ErrUnreadable says that a value exists but cannot be read now, for example because it cannot
	// be decrypted.
	ErrUnreadable = errors.New("value cannot be read")
	// ErrTooLarge says that a transaction is larger than the store accepts.
	ErrTooLarge = errors.New("too much for one transaction of the key-value store")
	// ErrClosed says that the store, or the watch, has been closed.
	ErrClosed = errors.New("key-value store closed")
)

// Item is a key with its present value. Value must not be modified.
type Item struct {
	Key         string
	Value       []byte
	ModRevision int64
	// Err says why Value is missing (ErrUnreadable). It is usually nil.
	Err error
}

// WriteResult is the result of a Put, Delete or WriteAll.
type WriteResult struct {
	// OK reports whether the write happened: the key was in the expected state.
	OK bool
	// Revision is the revision of the write. If OK is false, it is the store's revision after the
	// operation.
	Revision int64
	// Current is the key's present state if the write did not happen; nil if the key is absent. If
	// Current is the expected state, the write failed because a condition of the Put did not hold.
	Current *Item
}

// Unchanged is a condition of a Put: Key exists and has the ModRevision Revision.
type Unchanged struct {
	Key      string
	Revision int64
}

// MaxChanges is the number of changes that every store accepts in one WriteAll: etcd's default
// limit of operations in a transaction.
const MaxChanges = 128

// Change is the change of one key by WriteAll.
type Change struct {
	Key string
	// Expect is the expected ModRevision of the key, which must exist.
	Expect int64
	Value  []byte
	Delete bool // delete the key instead of setting Value
}

// RangeOptions selects the keys that a Range returns, and the revision at which it reads them.
type RangeOptions struct {
	Prefix string
	// Start is the first key to return. If it is empty, the range begins at the first key with the
	// prefix.
	Start string
	// Revision reads the state at that revision; 0 reads the present state, linearizably.
	Revision int64
	// Limit bounds the number of items; 0 means no limit.
	Limit int64
}

// RangeResult is the result of a Range, in key order.
type RangeResult struct {
	Items []Item
	// Revision is the store's revision at the time of the read.
	Revision int64
	// Count is the number of keys at or after Start, including those that are not returned because
	// of Limit.
	Count int64
}

// Event is a change of one key.
type Event struct {
	// Item is the new state. For a deletion Value is nil and ModRevision is the revision of the
	// deletion.
	Item
	Deleted bool
}

// Batch is the result of one Next of a watch.
type Batch struct {
	// Events are in revision order. They are empty in a progress notification.
	Events []Event
	// Revision is the progress of the watch: it has delivered every event up to this revision,
	// those of this batch included.
	Revision int64
}

// Watch is a stream of changes. Next is called by one goroutine at a time.
type Watch interface {
	// Next blocks until there is a batch. The error is ErrCompacted if the watch needs events that
	// have been compacted, ErrClosed after Stop, or that of ctx.
	Next(ctx context.Context) (Batch, error)
	// RequestProgress requests a batch with the progress of the watch. The store may send it late
	// or not at all, so callers should repeat the request.
	RequestProgress(ctx context.Context) error
	// Stop ends the watch. It may be called concurrently and more than once.
	Stop()
}

// Store is a key-value store. It is safe for concurrent use.
type Store interface {
	// Get returns a key's present state, or nil if the key is absent, and the store's revision.
	Get(ctx context.Context, key string) (*Item, int64, error)
	// Range returns the keys with a prefix. The error is ErrCompacted or ErrFutureRevision if
	// opts.Revision cannot be read.
	Range(ctx context.Context, opts RangeOptions) (RangeResult, error)
	// Put sets key to value if its present ModRevision is expect; 0 means that it is absent. ttl is
	// in seconds: the key expires between ttl and 1.05 ttl + 60 s later; 0 means that it does not
	// expire. All conditions on other keys must hold at the revision of the write.
	Put(ctx context.Context, key string, value []byte, expect, ttl int64, conditions ...Unchanged) (WriteResult, error)
	// Delete removes key if its present ModRevision is expect.
	Delete(ctx context.Context, key string, expect int64) (WriteResult, error)
	// WriteAll makes all changes, which are of different keys, at one revision, if each key has its
	// expected ModRevision; otherwise it makes none. The result has no Current. A store may reject
	// more than MaxChanges changes, or large ones, with ErrTooLarge.
	WriteAll(ctx context.Context, changes []Change) (WriteResult, error)
	// Watch delivers the changes of keys with the prefix, beginning with the given revision, which
	// is greater than 0 and may be in the future.
	Watch(ctx context.Context, prefix string, from int64) (Watch, error)
	// Revision returns a revision that is at least that of every write acknowledged before the
	// call.
	Revision(ctx context.Context) (int64, error)
	// Compact drops the states before revision. The error is ErrCompacted or ErrFutureRevision.
	Compact(ctx context.Context, revision int64) error
}

// PrefixEnd returns the first key after all keys with the prefix, or "" if there is none.
func PrefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return ""
}

// NextLimit returns the Limit for the page of a Range after one with these items. If the values of the
// next page are as large on average, it has about the given number of bytes. Limit is at most keys.
func NextLimit(items []Item, bytes, keys int) int64 {
	size := 0
	for i := range items {
		size += len(items[i].Value)
	}
	return int64(min(max(bytes*len(items)/max(size, 1), 1), keys))
}
