// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the objects of one resource: optimistic writes to a
// key-value store (etcd, or memory) and reads, lists and watches from a watch
// cache that holds encoded bytes.
//
// Invariants:
//   - A write that returned success is durable in the key-value store, and every
//     later consistent read of this or another server sees it.
//   - Records are immutable. What they hold is shared by all readers.
//   - Every watcher of a resource sees its events in revision order, without gap
//     or repetition, or is ended with a "too old" error.
//
// A Backend stands on one key-value store and follows it; a Store is made for
// each resource:
//
//	b := store.NewBackend(store.BackendConfig{KV: kvs, Clock: clock, Log: log})
//	go b.Run(ctx)
//	pods := store.New(store.Config{Backend: b, Prefix: "pods", ...})
//
// What a reader gets to see comes from the cache of the resource: an ordered set
// of records of which readers take copy-on-write snapshots, and a window of
// recent changes, from which watches are served and states of the past are made
// by taking changes back. Older states come from the key-value store.
//
// The package decides nothing about the meaning of objects: validation,
// admission and defaulting are its callers'.
package store

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/store/kv"
)

// Object is an API object in its wire type.
type Object interface {
	metav1.Object
	runtime.Object
}

// Codec turns objects of one resource into stored bytes and back.
// Implementations are safe for concurrent use. One whose Encode leaves out what
// Decode does not bring back says so by a method Lossy() bool.
type Codec interface {
	// Encode returns the stored form: resourceVersion and selfLink unset.
	Encode(obj Object) ([]byte, error)
	// Decode returns a new object with resourceVersion set to rev, which has nothing of
	// data: that is only there to be read until Decode returns.
	Decode(data []byte, rev int64) (Object, error)
}

// Attrs is what selection needs of an object.
type Attrs struct {
	Labels labels.Set
	Fields fields.Set // selectable fields; metadata.name and metadata.namespace may be missing
}

// Form names an encoding of a record for the wire, for example
// {"application/json", "v1"}. Package rest defines the forms it uses.
type Form struct {
	MediaType string
	Variant   string // version, "Table", "PartialObjectMetadata" ... as package rest defines
}

// Predicate selects records. A nil selector selects everything.
type Predicate struct {
	Namespace string // empty: all namespaces
	Name      string // set when a field selector or a watch asks for one name
	Labels    labels.Selector
	Fields    fields.Selector
}

// ListOptions says which records a List returns, and of which moment.
type ListOptions struct {
	Predicate
	// ResourceVersion and Match have the meaning of the Kubernetes API:
	// "" consistent; "0" any; otherwise not older than (default) or exactly at.
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
	Limit           int64  // 0: no limit
	Continue        string // token of an earlier page
}

// Page is one answer to a List.
type Page struct {
	Records   []*Record // in key order
	Runs      []Run     // what Records are made of, all of them, or nil
	Revision  int64     // the moment the list is of
	Continue  string    // empty on the last page
	Remaining *int64    // items after this page, where known (no selectors)
}

// WatchOptions says what a Watch delivers.
type WatchOptions struct {
	Predicate
	ResourceVersion   string // "" or "0": any, with the present state as ADDED events first; else events after it
	Match             metav1.ResourceVersionMatch
	AllowBookmarks    bool
	SendInitialEvents *bool
	// Timeout is how long the watch is to last; 0: nobody knows. With bookmarks a last
	// one comes shortly before, if anything has changed.
	Timeout time.Duration
}

// EventType is a kind of change, as in the watch protocol.
type EventType string

// The event types of the watch protocol.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is one change as one watcher sees it: an object that begins to match
// the watcher's predicate is Added, one that ceases to is Deleted.
type Event struct {
	Type EventType
	// Record is the object after the change; for Deleted its last state, at the
	// revision of the deletion. For a Bookmark it is nil.
	Record   *Record
	Revision int64
	// InitialEventsEnd is true of the bookmark that ends sendInitialEvents.
	InitialEventsEnd bool
}

// Watcher is a cursor into the events of a resource. It is used by one goroutine.
type Watcher interface {
	// Next blocks for the next batch of events and returns at least one. They are the
	// caller's until it asks again.
	// It returns ctx's error when ctx is done, and a StatusError with reason
	// Expired (410) when the watcher has fallen out of the window.
	Next(ctx context.Context) ([]Event, error)
	// Stop releases the watcher. It may be called at any time, more than once.
	Stop()
}

// UpdateFunc computes an object's next state from its present one, which it may
// not modify. It is called again when another write came first, and when it has
// refused, or changed nothing of, a state that turns out to be no longer the
// present one. Returning (nil, nil) deletes the object. A result that encodes to
// the same bytes as cur writes nothing. The result belongs to the store.
type UpdateFunc func(ctx context.Context, cur *Record) (Object, error)

// Interface is the store of one resource. Keys are "<namespace>/<name>" or
// "<name>". Errors are apimachinery StatusErrors (NotFound, AlreadyExists,
// Conflict, Expired, TooLargeResourceVersion ...). It is safe for concurrent use.
type Interface interface {
	// Create stores a new object, which belongs to the store afterwards: it is
	// given its resourceVersion and shared by readers. ttl is in seconds; 0 keeps
	// it for ever. ErrCondition says that one of conditions did not hold.
	Create(ctx context.Context, key string, obj Object, ttl int64, conditions ...kv.Unchanged) (*Record, error)
	// Update applies fn to the present state until no other write interferes.
	// The first try uses the cached state.
	Update(ctx context.Context, key string, fn UpdateFunc) (*Record, error)
	// UpdateAll is Update for several objects at one revision: all are written, or
	// none. fn is told which of keys is meant, and may be called for several at
	// once. refused has what fn, or an object's absence, says against a key, in
	// the order of keys; where it is not nil nothing is written.
	// kv.ErrTooLarge says that the store does not take so many at once.
	UpdateAll(ctx context.Context, keys []string, fn func(ctx context.Context, i int, cur *Record) (Object, error)) (refused []error, err error)
	// Delete removes an object after check has accepted its present state; check
	// may be nil. It returns the last state, at the revision of the deletion.
	Delete(ctx context.Context, key string, check func(cur *Record) error) (*Record, error)
	// DeleteAll removes the objects of at most kv.MaxChanges records at one
	// revision, as an expired lease would, if none has changed since; it reports
	// false and removes none otherwise.
	DeleteAll(ctx context.Context, records []*Record) (bool, error)
	// Get returns one object; resourceVersion as in ListOptions.
	Get(ctx context.Context, key string, resourceVersion string) (*Record, error)
	List(ctx context.Context, opts ListOptions) (*Page, error)
	// Watch begins a watch, which goes on after ctx.
	Watch(ctx context.Context, opts WatchOptions) (Watcher, error)
	// Ready is nil once the cache has loaded. Asking has it loaded.
	Ready() error
}
