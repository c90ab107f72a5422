// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kv is the key-value store below the API server's store: etcd's model
// reduced to what the store of API objects needs. Implementations are
// kv/etcd (external or embedded) and kv/memory; kv/kvtest holds the suite that
// every implementation passes.
//
// Invariants:
//   - Revisions belong to the whole store. Each successful write has one greater
//     than every write that was answered before it; a key's ModRevision is that of
//     its last write.
//   - An expired lease deletes all of its keys at one revision, as WriteAll does. Writes
//     of a Group that happen together have one as well, each key once.
//   - Get, Put, Delete and Revision are linearizable.
//   - A watch delivers events in revision order without gap or repetition, and
//     never splits the events of one revision over two batches.
package kv

import (
	"context"
	"errors"
)

var (
	// ErrCompacted says that a revision was asked for which has been compacted away.
	ErrCompacted = errors.New("required revision has been compacted")
	// ErrFutureRevision says that a revision was asked for which is yet to come.
	ErrFutureRevision = errors.New("required revision is a future revision")
	// ErrUnreadable says that a value is there and cannot be read, at present.
	ErrUnreadable = errors.New("value cannot be read")
	// ErrTooLarge says that a store does not take so much in one transaction.
	ErrTooLarge = errors.New("too much for one transaction of the key-value store")
	// ErrClosed says that the store, or the watch, has been closed.
	ErrClosed = errors.New("key-value store closed")
)

// Item is a key with its present value. Value is never modified.
type Item struct {
	Key         string
	Value       []byte
	ModRevision int64
}

// WriteResult is the outcome of a Put or Delete.
type WriteResult struct {
	// OK is true when the key was in the expected state and the write happened.
	OK bool
	// Revision is the store's revision after the operation; that of the write
	// itself where OK.
	Revision int64
	// Current is the key's present state where not OK; nil when it is absent. If it is
	// the expected state, a condition of the Put does not hold.
	Current *Item
}

// Unchanged is a condition of a Put: Key, which exists, still has the ModRevision Revision.
type Unchanged struct {
	Key      string
	Revision int64
}

// MaxChanges is how many changes every store takes in one WriteAll: as many
// operations as etcd allows in one transaction unless it is told otherwise.
const MaxChanges = 128

// Change is what a WriteAll does to one key.
type Change struct {
	Key string
	// Expect is the ModRevision that the key, which is there, is expected to have.
	Expect int64
	Value  []byte
	Delete bool // instead of setting Value
}

// RangeOptions says what a Range returns.
type RangeOptions struct {
	Prefix string
	// Start skips keys before it; empty starts at the prefix.
	Start string
	// Revision reads the state at that revision; 0 the present, linearizably.
	Revision int64
	// Limit bounds the number of items; 0 does not.
	Limit int64
}

// RangeResult is the answer to a Range, in key order.
type RangeResult struct {
	Items []Item
	// Revision is the store's present revision at the time of the answer.
	Revision int64
	// Count is how many keys there are from Start on, the returned ones included.
	Count int64
}

// Event is one change of one key.
type Event struct {
	// Item is the new state; of a deletion Value is nil and ModRevision is the
	// revision of the deletion.
	Item
	Deleted bool
	// Err says why Value is not there (ErrUnreadable); nil as a rule.
	Err error
}

// Batch is what a watch delivers at a time.
type Batch struct {
	// Events are in revision order; empty in a pure progress notification.
	Events []Event
	// Revision says how far the watch has come: it has delivered, this batch
	// included, every event up to and including it.
	Revision int64
}

// Watch is a stream of changes. Next is called by one goroutine.
type Watch interface {
	// Next blocks for the next batch. It returns ErrCompacted when the watch
	// asks for events that are gone, and ErrClosed after Stop.
	Next(ctx context.Context) (Batch, error)
	// RequestProgress asks for a batch that tells how far the watch has come,
	// soon. The store may answer late or not at all: ask again.
	RequestProgress(ctx context.Context) error
	// Stop ends the watch. It may be called more than once.
	Stop()
}

// Store is a key-value store. It is safe for concurrent use.
type Store interface {
	// Get returns a key's present state, nil when it is absent, and the store's revision.
	Get(ctx context.Context, key string) (*Item, int64, error)
	// Range returns the keys with a prefix.
	Range(ctx context.Context, opts RangeOptions) (RangeResult, error)
	// Put sets key to value if its present ModRevision is expect; 0 means that it
	// is absent. With ttl (seconds) the key goes by itself between ttl and
	// 1.05 ttl + 60s later; 0 keeps it. All of the conditions on other keys have to hold
	// at the revision of the write.
	Put(ctx context.Context, key string, value []byte, expect, ttl int64, conditions ...Unchanged) (WriteResult, error)
	// Delete removes key if its present ModRevision is expect.
	Delete(ctx context.Context, key string, expect int64) (WriteResult, error)
	// WriteAll makes all changes, of different keys, at one revision if the present
	// ModRevision of each is expected; else none. The result has no Current. A
	// store may refuse more than MaxChanges, or some large ones, with ErrTooLarge.
	WriteAll(ctx context.Context, changes []Change) (WriteResult, error)
	// Watch delivers the changes of keys with the prefix from revision from on,
	// which is greater than 0 and may be in the future.
	Watch(ctx context.Context, prefix string, from int64) (Watch, error)
	// Revision is at least that of every write acknowledged before the call.
	Revision(ctx context.Context) (int64, error)
	// Compact drops what is needed only for reads before revision.
	Compact(ctx context.Context, revision int64) error
}

// PrefixEnd returns the first key after all keys with the prefix; empty means
// that there is none.
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
