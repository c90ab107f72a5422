// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store/kv"
)

// Config describes one resource to its Store.
type Config struct {
	Backend *Backend
	// Prefix is the path of the resource's keys below the backend's root:
	// "pods", "services/specs", "stable.example.com/crontabs".
	Prefix        string
	GroupResource schema.GroupResource // how errors name it
	Codec         Codec
	// Attrs returns what selection needs of an object. It keeps no reference to
	// what may change.
	Attrs func(obj Object) Attrs
	// Peek returns what Attrs does of the object that stored bytes decode into,
	// without decoding all of it, if it can. May be nil.
	Peek func(data []byte) (Attrs, bool)
	// Renew returns what Codec would have written of the object that stored bytes decode
	// into, if that is not those bytes: they are of another version, or from before a
	// field had a default. It is asked of what others wrote. May be nil.
	Renew func(data []byte) (renewed []byte, changed bool)
	// End returns the last state that is told of an object once it is gone, if that is
	// another than the stored one, data: so that an end that changes the object takes
	// one write. What selection looks at is the same. May be nil.
	End func(data []byte) (last []byte, changed bool)
	// IndexFields are the selectable fields by which lists and watches find
	// objects without looking at all of them.
	IndexFields []string
	// Twin, if set, has the objects: Backend, Prefix, Attrs, Peek, Renew, End and IndexFields
	// are those of its store.
	Twin *Twin
	// TTL is how many seconds an updated object is kept; nil or 0: for ever. (A
	// Create is told by its caller.)
	TTL func(obj Object) int64
}

// Store is the store of one resource.
type Store struct {
	Config
	b      *Backend
	prefix string // "<prefix>/"
	cache  *cache
}

var _ Interface = (*Store)(nil)

// New returns the store of a resource. Nothing is read before its first use.
func New(cfg Config) *Store {
	if cfg.Twin != nil {
		return newTwin(cfg)
	}
	s := &Store{Config: cfg, b: cfg.Backend, prefix: strings.Trim(cfg.Prefix, "/") + "/"}
	s.cache = newCache(cfg.Backend, s.prefix, &s.Config)
	s.b.register(s.prefix, s.cache)
	return s
}

// Close ends all watches and releases the cache, for a resource that is no
// longer served. Stored objects stay. What a twin shows is released with the store
// that has it.
func (s *Store) Close() {
	if s.Twin != nil {
		return
	}
	s.b.unregister(s.prefix, s.cache)
	s.cache.close()
}

// Stats is what a store holds at a moment.
type Stats struct {
	Started  bool  // somebody has used the store
	Objects  int   // in the cache
	Bytes    int   // of their stored forms
	Watchers int   //
	Events   int   // in the window
	Revision int64 // of the cache's state
	Received int64 // events that have come so far
}

// Stats returns what the store holds. It does not start it.
func (s *Store) Stats() Stats {
	c := s.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	bytes := 0
	for _, b := range c.records.blocks {
		bytes += b.size
	}
	return Stats{
		Bytes:   bytes,
		Started: c.state != idle, Objects: c.records.n, Watchers: c.watchers.count,
		Events: int(c.window.end() - c.window.first), Revision: c.reachedLocked(), Received: c.received.Load(),
	}
}

// Count asks how many objects are stored. It does not start the store.
func (s *Store) Count(ctx context.Context) (int64, error) {
	found, err := s.b.kv.Range(ctx, kv.RangeOptions{Prefix: s.b.root + s.prefix, Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", s.prefix, err)
	}
	return found.Count, nil
}

// Ready implements Interface. It also has the cache loaded, if nobody has used it yet.
func (s *Store) Ready() error {
	if !s.cache.isReady() {
		return errors.New(msgNotReady)
	}
	return nil
}

// Get implements Interface.
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
	if err := s.cache.wait(ctx); err != nil {
		return nil, err
	}
	if err := s.b.fresh.wait(ctx, rev); err != nil {
		return nil, s.uncached(err)
	}
	if r := s.cached(key); r != nil {
		return r, nil
	}
	return nil, s.notFound(key)
}

// getCurrent returns the state of this moment: from the cache once it has
// caught up, or from the key-value store when the cache is not there.
func (s *Store) getCurrent(ctx context.Context, key string) (*Record, error) {
	if s.cache.isReady() {
		rev, err := s.b.revision.current(ctx)
		if err != nil {
			return nil, translate(ctx, err)
		}
		err = s.b.fresh.wait(ctx, rev)
		if err != nil && !isTooLarge(err) {
			return nil, err
		}
		if r := s.cached(key); r != nil && err == nil {
			return r, nil
		}
		if err == nil && s.cache.isReady() {
			return nil, s.notFound(key)
		}
	}
	item, _, err := s.b.kv.Get(ctx, s.fullKey(key))
	if err != nil {
		return nil, translate(ctx, err)
	}
	return s.found(key, item)
}

// cached returns what the cache has, which may be old.
func (s *Store) cached(key string) *Record {
	s.cache.mu.RLock()
	defer s.cache.mu.RUnlock()
	if s.cache.state != ready {
		return nil
	}
	return s.shows(s.cache.records.get(key))
}

// found makes a record of what the key-value store has under key.
func (s *Store) found(key string, item *kv.Item) (*Record, error) {
	if item == nil {
		return nil, s.notFound(key)
	}
	obj, err := s.Codec.Decode(item.Value, item.ModRevision)
	if err != nil {
		return nil, err
	}
	if s.Twin != nil {
		return s.shows(s.cache.decode(item, nil)), nil
	}
	data, renewed := s.cache.renewed(item.Value)
	r := s.cache.newRecord(key, item.ModRevision, data, s.Attrs(obj), obj)
	r.renewed = renewed
	return r, nil
}

// Unchanged returns the condition that the object of r is stored as it is in r.
func (s *Store) Unchanged(r *Record) kv.Unchanged {
	return kv.Unchanged{Key: s.fullKey(r.Key), Revision: r.Revision}
}

func (s *Store) fullKey(key string) string { return s.b.root + s.prefix + key }

func (s *Store) notFound(key string) error {
	return apierrors.NewNotFound(s.GroupResource, nameOf(key))
}

// checkKey refuses keys that would lead out of the resource.
func (s *Store) checkKey(key string) error {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return apierrors.NewInternalError(fmt.Errorf("invalid key: %q", key))
		}
	}
	return nil
}
