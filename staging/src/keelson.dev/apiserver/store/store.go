// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the objects of a resource: optimistic writes to a key-value store (etcd, or
// memory), and reads, lists and watches from a watch cache of encoded bytes.
//
// Invariants:
//   - A write that returned success is durable in the key-value store, and every later consistent
//     read of this or another server sees it.
//   - The object that a Record represents never changes. All readers share it.
//   - Every watcher of a resource receives its events in revision order, without gap or repetition,
//     or ends with an Expired error (410).
//
// A Backend follows one key-value store. Each resource has a Store on a Backend:
//
//	b := store.NewBackend(store.BackendConfig{KV: kvs, Clock: clock, Log: log})
//	go b.Run(ctx)
//	pods := store.New(store.Config{Backend: b, Prefix: "pods", ...})
//
// Readers are answered from the cache of the resource: an ordered set of records, from which
// readers take copy-on-write snapshots, and a window of recent changes. Watches read the window. A
// list at a past revision is the present state with the newer changes undone; if the window does
// not reach back that far, the key-value store answers. docs/explanation/watch-cache.md draws the
// layers.
//
// The package does not know what objects mean. Its callers validate, admit and default them.
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

// Reader reads the objects of one resource. Keys are "<namespace>/<name>" or "<name>". Errors are
// apimachinery StatusErrors. It is safe for concurrent use.
type Reader interface {
	// Get returns one object. An empty resourceVersion reads consistently; "0" returns the cached
	// state; another value returns a state that is not older. The error is NotFound, BadRequest for
	// an invalid resourceVersion, or Timeout with the cause ResourceVersionTooLarge.
	Get(ctx context.Context, key string, resourceVersion string) (*Record, error)
	// List returns the objects that opts selects, including those that cannot be decrypted or decoded
	// (see Page.ReadError). The error is BadRequest for invalid options,
	// Timeout with the cause ResourceVersionTooLarge, or Expired (410) if the revision has been
	// compacted.
	List(ctx context.Context, opts ListOptions) (*Page, error)
	// Watch starts a watch. ctx bounds the call only; the watch ends with Watcher.Stop. The error
	// is that of an invalid resourceVersion, or Expired (410) if the events after it are gone.
	Watch(ctx context.Context, opts WatchOptions) (Watcher, error)
}

// Writer changes the objects of one resource, one at a time. Keys are "<namespace>/<name>" or
// "<name>". Errors are apimachinery StatusErrors, unless noted. It is safe for concurrent use.
type Writer interface {
	// Create stores a new object. The object belongs to the store afterwards: the store sets its
	// resourceVersion, and readers share it. The object is deleted ttl seconds later, or never if
	// ttl is 0. The error is AlreadyExists, or ErrCondition if one of the conditions did not hold.
	Create(ctx context.Context, key string, obj Object, ttl int64, conditions ...kv.Unchanged) (*Record, error)
	// Update applies fn to the present state, and applies it again if another client wrote the
	// object first. It returns the resulting record, NotFound, or the error of fn. See UpdateFunc.
	Update(ctx context.Context, key string, fn UpdateFunc) (*Record, error)
	// Delete removes an object after check, which may be nil, has accepted its present state. It
	// returns the last state at the revision of the deletion, NotFound, or the error of check.
	Delete(ctx context.Context, key string, check func(cur *Record) error) (*Record, error)
	// DeleteCorrupt removes an object whose stored bytes cannot be read or decoded. A dry run only
	// makes the checks. The error is NotFound, or ErrNotCorrupt if the object can be read.
	DeleteCorrupt(ctx context.Context, key string, dryRun bool) error
}

// ReadWriter is a Reader and a Writer.
type ReadWriter interface {
	Reader
	Writer
}

// Batcher changes several objects of one resource at one revision: all of them, or none. It is safe
// for concurrent use.
type Batcher interface {
	// UpdateAll applies fn to the present state of each object; i is the index in keys. fn may run
	// concurrently for different objects, and must not delete. If fn rejects an object, or the
	// object is absent, nothing is written, and refused has its error at its index in keys. err is
	// kv.ErrTooLarge if the key-value store does not accept so many changes at once.
	UpdateAll(
		ctx context.Context, keys []string, fn func(ctx context.Context, i int, cur *Record) (Object, error),
	) (refused []error, err error)
	// DeleteAll removes the objects of records, at most kv.MaxChanges. It returns false, and
	// removes none, if one of them has changed.
	DeleteAll(ctx context.Context, records []*Record) (bool, error)
}

// Monitor reports the size of a store without loading its cache. It is safe for concurrent use.
type Monitor interface {
	// Stats returns what the cache of the store contains.
	Stats() Stats
	// Count reads the number of stored objects from the key-value store.
	Count(ctx context.Context) (int64, error)
}

// Interface is the store of one resource. Consumers take the smaller interface that they need.
type Interface interface {
	ReadWriter
	Batcher
	Monitor
	// Close ends all watches and releases the cache of a resource that is no longer served. Stored
	// objects stay. It may be called more than once.
	Close()
}

// Object is an API object in the Go type that is encoded for clients.
type Object interface {
	metav1.Object
	runtime.Object
}

// Codec encodes and decodes the stored bytes of one resource. It is safe for concurrent use.
type Codec interface {
	// Encode returns the stored form of obj, without resourceVersion and selfLink.
	Encode(obj Object) ([]byte, error)
	// Decode returns a new object with resourceVersion rev. The object must not share memory with
	// data, which may be overwritten after Decode returns.
	Decode(data []byte, rev int64) (Object, error)
	// Lossy reports whether Encode may drop or change a part of an object. A writer then gets the
	// decoded stored form back, like all readers.
	Lossy() bool
}

// Attrs are the attributes of an object that selectors look at.
type Attrs struct {
	Labels labels.Set
	Fields fields.Set // selectable fields; metadata.name and metadata.namespace may be missing
}

// Form names an encoding of a record for the wire, for example {"application/json", "v1"}. Package
// rest defines the forms that it uses. All encodings of a record in one form are equal.
type Form struct {
	MediaType string
	Variant   string // a version, "Table", "PartialObjectMetadata" and so on
}

// Predicate selects records. A nil selector selects everything.
type Predicate struct {
	Namespace string // all namespaces if empty
	Name      string // the only name that can match; empty for all names
	Labels    labels.Selector
	Fields    fields.Selector
}

// ListOptions selects the records that a List returns, and the revision of the list.
type ListOptions struct {
	Predicate
	// ResourceVersion and Match are defined by the Kubernetes API: "" is a consistent read, "0"
	// accepts any state, and another value accepts only states that are not older (the default) or
	// exactly that state.
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
	Limit           int64  // maximum number of records; 0 means all
	Continue        string // token of an earlier page
}

// Page is the result of a List. Callers may replace elements of Records, but not change the
// records.
type Page struct {
	Records   []*Record // in key order
	Runs      []Run     // all blocks that Records come from; nil if unknown
	Revision  int64     // the revision of the list
	Continue  string    // token for the next page; empty on the last page
	Remaining *int64    // number of items after this page; nil if unknown, as with selectors
	broken    bool      // some records cannot be decrypted or decoded
}

// ReadError returns the error of the first record that cannot be decrypted or decoded, or nil.
func (p *Page) ReadError() error {
	if !p.broken {
		return nil
	}
	for _, r := range p.Records {
		if r.broken {
			_, err := r.Object()
			return err
		}
	}
	return nil
}

// WatchOptions selects the events that a Watch delivers.
type WatchOptions struct {
	Predicate
	// ResourceVersion is the revision after which events are delivered. If it is "" or "0", the
	// watch first delivers the present state as Added events.
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
	AllowBookmarks  bool
	// SendInitialEvents says whether the watch delivers the present state first; see the Kubernetes
	// API.
	SendInitialEvents *bool
	// Timeout is how long the watch will last, or 0 if that is unknown. If bookmarks are allowed,
	// the last one is sent 2 seconds before the timeout, unless nothing has changed.
	Timeout time.Duration
}

// EventType is the type of a watch event.
type EventType string

// The event types of the watch protocol.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
)

// Event is a change as one watcher sees it. If an object begins to match the watcher's predicate,
// the type is Added. If the object ceases to match, the type is Deleted.
type Event struct {
	Type EventType
	// Record is the object after the change. For Deleted it is the last state, at the revision of
	// the deletion. It is nil for a Bookmark.
	Record   *Record
	Revision int64
	// InitialEventsEnd is set for the bookmark that follows the initial events.
	InitialEventsEnd bool
}

// Watcher delivers the events of one watch. Next is called by one goroutine at a time.
type Watcher interface {
	// Next blocks until there are events and returns at least one. The slice is valid until the
	// next call. The error is that of ctx when it is done, or a StatusError with reason Expired
	// (410) when the watcher has fallen out of the window.
	Next(ctx context.Context) ([]Event, error)
	// Stop releases the watcher and wakes Next. It may be called concurrently and more than once.
	Stop()
}

// UpdateFunc computes the next state of an object from its present state, which it must not modify.
// It returns nil, nil to delete the object. The result belongs to the store. If it encodes to the
// same bytes as cur, nothing is written.
//
// An update first calls the function with the cached state. It calls the function again if another
// client wrote the object first, or if the function rejected or did not change a cached state that
// turned out to be old.
type UpdateFunc func(ctx context.Context, cur *Record) (Object, error)
