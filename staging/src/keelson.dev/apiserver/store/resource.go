// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/tracing"
)

// Config is the configuration of a Store. Backend, Prefix, GroupResource, Codec and Attrs are
// required. If Alias is set, only Alias, GroupResource and Codec are. The functions are called
// concurrently.
type Config struct {
	// What is stored, and where it is stored.

	Backend *Backend
	// Prefix is the path of the resource's keys below the root of the backend: "pods",
	// "services/specs", "stable.example.com/crontabs".
	Prefix        string
	GroupResource schema.GroupResource // resource that errors name
	TypeName      string               // name of the objects' type in trace spans, for example "*core.Pod"
	// Alias is set if this store serves the objects of another store. The fields that belong to the
	// cache, such as Backend, Prefix, Attrs and IndexFields, are then those of that store.
	Alias *Alias
	// TTL returns the number of seconds after which an updated object is deleted; 0 means never. It
	// is nil if objects of the resource never expire. (Create has the TTL as a parameter.)
	TTL func(obj Object) int64

	// How stored bytes are read and written.

	Codec Codec
	// Attrs returns the attributes of an object. They must not refer to memory that may change.
	Attrs func(obj Object) Attrs
	// Peek returns the attributes of a stored object without decoding all of it. It returns false
	// if the whole object has to be decoded. It may be nil.
	Peek func(data []byte) (Attrs, bool)
	// Reencode returns the bytes that Codec would write for a stored object, if they differ from
	// data: another server may have stored another version, or a field may have got a default
	// since. It may be nil.
	Reencode func(data []byte) (reencoded []byte, changed bool)
	// FinalState returns the state that watchers receive when an object is deleted, if it differs
	// from the stored one. With it, a deletion that also changes the object needs one write. The
	// attributes must stay the same. It may be nil.
	FinalState func(data []byte) (last []byte, changed bool)
	// IndexFields are selectable fields for which the cache keeps an index. Lists and watches that
	// require a value of such a field do not look at all objects.
	IndexFields []string
}

// Store is the store of one resource. It is safe for concurrent use.
type Store struct {
	Config
	b      *Backend
	prefix string // "<prefix>/"
	cache  *cache // if this store is an alias: the cache of the other store
}

var _ Interface = (*Store)(nil)

// New returns the store of a resource. The store reads nothing before it is first used.
func New(cfg Config) *Store {
	if cfg.Alias != nil {
		return newAlias(cfg)
	}
	s := &Store{Config: cfg, b: cfg.Backend, prefix: strings.Trim(cfg.Prefix, "/") + "/"}
	s.cache = newCache(cfg.Backend, s.prefix, &s.Config)
	s.b.caches.add(s.prefix, s.cache)
	return s
}

// Close implements Interface. Closing an alias (a store that serves the objects of another store)
// does nothing, because the cache belongs to that other store.
func (s *Store) Close() {
	if s.Alias != nil {
		return
	}
	s.b.caches.remove(s.prefix, s.cache)
	s.cache.close()
}

// Stats describes the content of a store at one moment.
type Stats struct {
	Stored   bool  // whether the store has objects of its own: they are not computed, and it is not an alias
	Started  bool  // whether the store has been used, so that its cache is loaded or loading
	Objects  int   // number of objects in the cache
	Bytes    int   // total size of the stored bytes of these objects
	Watchers int   // number of watches
	Events   int   // number of changes in the window
	Revision int64 // revision of the state in the cache
	Received int64 // number of events received since the server started

	// Lists by source: all objects in the cache, the objects that an index of the cache has for a
	// value, and the storage.
	CachedLists, IndexedLists, StoredLists ListStats
}

// Stats implements Monitor.
func (s *Store) Stats() Stats {
	c := s.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	bytes := 0
	for _, b := range c.records.blocks {
		bytes += b.size
	}
	return Stats{
		Stored: s.Alias == nil, Started: c.state != idle,
		Objects: c.records.n, Bytes: bytes, Watchers: c.watchers.count,
		Events: int(c.window.end() - c.window.first), Revision: c.reachedLocked(), Received: c.received.Load(),
		CachedLists: c.cachedLists.stats(), IndexedLists: c.indexedLists.stats(), StoredLists: c.storedLists.stats(),
	}
}

// Count implements Monitor.
func (s *Store) Count(ctx context.Context) (int64, error) {
	found, err := s.b.kv.Range(ctx, kv.RangeOptions{Prefix: s.b.root + s.prefix, Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", s.prefix, err)
	}
	return found.Count, nil
}

// Get implements Reader.
func (s *Store) Get(ctx context.Context, key string, resourceVersion string) (*Record, error) {
	rev, err := parseRevision(resourceVersion)
	if err != nil {
		return nil, badRevision(err)
	}
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	if resourceVersion == "" {
		return s.getCurrent(ctx, key)
	}
	ctx, span := s.startGet(ctx, key, resourceVersion)
	defer span.End()
	if err := s.cache.wait(ctx); err != nil {
		return nil, err
	}
	if err := s.b.barrier.wait(ctx, rev); err != nil {
		return nil, s.uncached(err)
	}
	span.Event(eventFresh)
	if r := s.cached(span, key); r != nil {
		return r, nil
	}
	return nil, s.notFound(key)
}

// getCurrent returns the present state. It waits until the cache has reached the present revision. If
// the cache is not ready or does not reach it in time, it reads the key-value store. It does so too if
// only the key-value store can show whether the object can be decrypted now.
func (s *Store) getCurrent(ctx context.Context, key string) (*Record, error) {
	if s.cache.isReady() && !s.b.recheck() {
		if r, err := s.getConsistent(ctx, key); r != nil || err != nil {
			return r, err
		}
	}
	ctx, span := s.startStored(ctx, key)
	defer span.End()
	item, _, err := s.b.kv.Get(ctx, s.fullKey(key))
	span.Result("Get call", err)
	if err != nil {
		return nil, translate(ctx, err)
	}
	r, err := s.found(key, item)
	if item != nil {
		span.Sized("Decode", len(item.Value), err)
	}
	return r, err
}

// getConsistent returns the present state from the cache. It returns nil and no error if the cache
// is not ready, does not reach the present revision in time, or has the object only in the form that
// it could not decrypt.
func (s *Store) getConsistent(ctx context.Context, key string) (*Record, error) {
	ctx, span := s.startGet(ctx, key, "")
	defer span.End()
	rev, err := s.b.revision.current(ctx)
	if err != nil {
		return nil, translate(ctx, err)
	}
	span.Event(eventCurrent)
	if err := s.b.barrier.wait(ctx, rev); err != nil {
		if isTooLarge(err) {
			return nil, nil
		}
		return nil, err
	}
	span.Event(eventFresh)
	r := s.cached(span, key)
	switch {
	case r == nil && s.cache.isReady():
		return nil, s.notFound(key)
	case r != nil && r.sealed():
		return nil, nil
	}
	return r, nil
}

// cached returns the record in the cache, which may be out of date, or nil if there is none.
func (s *Store) cached(span *tracing.Span, key string) *Record {
	s.cache.mu.RLock()
	defer s.cache.mu.RUnlock()
	span.Event(eventLocked)
	if s.cache.state != ready {
		return nil
	}
	r := s.view(s.cache.records.get(key))
	span.Event("GetByKey success")
	return r
}

// found returns the record of an item of the key-value store, or NotFound if item is nil.
func (s *Store) found(key string, item *kv.Item) (*Record, error) {
	if item == nil {
		return nil, s.notFound(key)
	}
	if item.Err != nil {
		return nil, &UnreadableError{key, item.ModRevision, item.Err}
	}
	obj, err := s.Codec.Decode(item.Value, item.ModRevision)
	if err != nil {
		s.b.undecodable(item.Key)
		return nil, &UnreadableError{key, item.ModRevision, err}
	}
	if s.Alias != nil {
		return s.view(s.cache.decode(item, nil)), nil
	}
	data, reencoded := s.cache.reencoded(item.Value)
	r := s.cache.newRecord(key, item.ModRevision, data, s.Attrs(obj), obj)
	r.reencoded = reencoded
	return r, nil
}

// Unchanged returns the condition that the object of r has not been written since r. It may be
// passed to Create of any store on the same key-value store.
func (s *Store) Unchanged(r *Record) kv.Unchanged {
	return kv.Unchanged{Key: s.fullKey(r.Key), Revision: r.Revision}
}

func (s *Store) fullKey(key string) string { return s.b.root + s.prefix + key }

func (s *Store) notFound(key string) error {
	return apierrors.NewNotFound(s.GroupResource, nameOf(key))
}

// checkKey rejects keys that would not be below the prefix of the resource.
func (s *Store) checkKey(key string) error {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return apierrors.NewInternalError(fmt.Errorf("invalid key: %q", key))
		}
	}
	return nil
}
