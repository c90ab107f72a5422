// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/tracing"
)

// Create implements Writer.
func (s *Store) Create(ctx context.Context, key string, obj Object, ttl int64,
	conditions ...kv.Unchanged) (*Record, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != "0" {
		return nil, apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
	}
	// Start the cache before the write: a client may watch from the revision of the new object, and
	// must then see all later changes.
	s.cache.start()
	ctx, span := s.startWrite(ctx, "Create etcd3", key)
	defer span.End()
	span.Event("About to Encode")
	data, err := s.Codec.Encode(obj)
	span.Sized("Encode", len(data), err)
	if err != nil {
		return nil, err
	}
	rec, res, err := s.put(ctx, key, obj, data, nil, ttl, conditions...)
	span.Result("Txn call", err)
	if err != nil {
		return nil, err
	}
	switch {
	case !res.OK && res.Current == nil:
		return nil, ErrCondition
	case !res.OK:
		return nil, apierrors.NewAlreadyExists(s.GroupResource, nameOf(key))
	}
	return rec, nil
}

// Update implements Writer.
func (s *Store) Update(ctx context.Context, key string, fn UpdateFunc) (*Record, error) {
	inside, span := s.startWrite(ctx, "GuaranteedUpdate etcd3", key)
	defer span.End()
	return s.update(inside, span, key, withContext(ctx, span, fn))
}

func (s *Store) update(ctx context.Context, span *tracing.Span, key string, fn UpdateFunc) (*Record, error) {
	cur, current, err := s.present(ctx, key)
	if err == nil {
		span.Event("initial value restored")
	}
	for err == nil {
		var next *Record
		var conflict *kv.WriteResult
		next, conflict, err = s.attempt(ctx, key, cur, current, fn)
		if conflict != nil {
			if cur, err = s.found(key, conflict.Current); err == nil {
				span.Event("Retry value restored")
			}
			current = true
			continue
		}
		var r refusal
		refused := errors.As(err, &r)
		if current || next != nil || err != nil && !refused {
			return next, cmp.Or(r.error, err)
		}
		// fn rejected or did not change a cached state. This result is final only if the cached
		// state is still the present one.
		decided := cur.Revision
		cur, current, err = s.verify(ctx, key, cur, r.error)
		if err != nil || cur.Revision != decided {
			continue
		}
		if old, err := s.outdated(ctx, key, cur); err != nil || !old {
			return cur, translate(ctx, err)
		}
	}
	return nil, err
}

// refusal is an error with which an UpdateFunc rejected a state. Update may call the function again
// with a newer state. After any other error it must not retry: the write may have succeeded in the
// key-value store, and a retry could apply the change twice.
type refusal struct{ error }

// attempt applies fn to cur once. The argument current reports whether cur is known to be the
// present state. If it is not known and fn changes nothing, attempt returns neither a record nor a
// conflict. An error of fn is returned as a refusal.
func (s *Store) attempt(
	ctx context.Context, key string, cur *Record, current bool, fn UpdateFunc,
) (*Record, *kv.WriteResult, error) {
	obj, err := fn(ctx, cur)
	if err != nil {
		return nil, nil, refusal{err}
	}
	if obj == nil {
		return s.deleteOnce(ctx, key, cur)
	}
	span := tracing.Current(ctx)
	span.Event("About to Encode")
	data, err := s.Codec.Encode(obj)
	span.Sized("Encode", len(data), err)
	if err != nil {
		return nil, nil, refusal{err}
	}
	if len(data) == cur.size && bytes.Equal(data, cur.Bytes()) {
		if !current {
			return nil, nil, nil
		}
		if old, err := s.outdated(ctx, key, cur); err != nil || !old {
			return cur, nil, translate(ctx, err)
		}
	}
	var ttl int64
	if s.TTL != nil {
		ttl = s.TTL(obj)
	}
	span.Event("Transaction prepared")
	rec, res, err := s.put(ctx, key, obj, data, cur, ttl)
	committed(span, res, err)
	if err == nil && !res.OK {
		return nil, &res, nil
	}
	return rec, nil, err
}

// Delete implements Writer.
func (s *Store) Delete(ctx context.Context, key string, check func(cur *Record) error) (*Record, error) {
	cur, current, err := s.present(ctx, key)
	for err == nil {
		if check != nil {
			err = check(cur)
		}
		if err != nil {
			if current {
				break
			}
			cur, current, err = s.verify(ctx, key, cur, err)
			continue
		}
		last, conflict, derr := s.deleteOnce(ctx, key, cur)
		if conflict == nil {
			return last, derr
		}
		cur, err = s.found(key, conflict.Current)
		current = true
	}
	return nil, err
}

// DeleteCorrupt implements Writer.
func (s *Store) DeleteCorrupt(ctx context.Context, key string, dryRun bool) error {
	if err := s.checkKey(key); err != nil {
		return err
	}
	for {
		item, _, err := s.b.kv.Get(ctx, s.fullKey(key))
		if err != nil {
			return translate(ctx, err)
		}
		if item == nil {
			return s.notFound(key)
		}
		if item.Err == nil {
			if _, err := s.Codec.Decode(item.Value, item.ModRevision); err == nil {
				return ErrNotCorrupt
			}
		}
		if dryRun {
			return nil
		}
		res, err := s.b.kv.Delete(ctx, s.fullKey(key), item.ModRevision)
		if err != nil {
			return translate(ctx, err)
		}
		if res.OK {
			return nil
		}
	}
}

// DeleteAll implements Batcher.
func (s *Store) DeleteAll(ctx context.Context, records []*Record) (bool, error) {
	changes := make([]kv.Change, len(records))
	for i, r := range records {
		if err := s.checkKey(r.Key); err != nil {
			return false, err
		}
		changes[i] = kv.Change{Key: s.fullKey(r.Key), Expect: r.Revision, Delete: true}
	}
	res, err := s.b.kv.WriteAll(ctx, changes)
	return err == nil && res.OK, translate(ctx, err)
}

// present returns the state of an object for the first attempt of a write: the cached state, or a
// later state that this server wrote and the cache has not received yet. The result current reports
// whether it is known to be the present state.
func (s *Store) present(ctx context.Context, key string) (cur *Record, current bool, err error) {
	if err := s.checkKey(key); err != nil {
		return nil, false, err
	}
	s.cache.start()
	cur = s.cached(nil, key)
	if r := s.cache.pending.latest(key); r != nil && (cur == nil || cur.Revision < r.Revision) {
		cur = s.view(r)
	}
	if cur != nil {
		return cur, false, nil
	}
	cur, err = s.getCurrent(ctx, key)
	return cur, true, err
}

// verify reads the present state after the function fn or check has rejected or not changed the
// cached one. If the cached state is the present one, verify returns reason, which may be nil, as
// its error.
func (s *Store) verify(ctx context.Context, key string, cached *Record, reason error) (*Record, bool, error) {
	cur, err := s.getCurrent(ctx, key)
	if err != nil {
		return nil, false, err
	}
	if cur.Revision == cached.Revision && reason != nil {
		return nil, false, reason
	}
	return cur, true, nil
}

// put replaces cur by obj, whose encoding is data. The argument cur is nil for a new object. The
// returned record is the one that the cache will contain.
func (s *Store) put(ctx context.Context, key string, obj Object, data []byte, cur *Record, ttl int64,
	conditions ...kv.Unchanged) (*Record, kv.WriteResult, error) {
	w, err := s.newPendingWrite(ctx, key, obj, data, cur)
	if err != nil {
		return nil, kv.WriteResult{}, err
	}
	var expect int64
	if cur != nil {
		expect = cur.Revision
	}
	added := s.cache.addPending(w)
	res, err := s.b.kv.Put(ctx, s.fullKey(key), data, expect, ttl, conditions...)
	if err != nil || !res.OK {
		if added {
			s.cache.pending.remove(w)
		}
		return nil, res, translate(ctx, err)
	}
	return s.writtenView(w.recordAt(s.cache, res.Revision), obj), res, nil
}

// Growth is a write of an object, with the object's stored sizes in bytes.
type Growth struct {
	Resource schema.GroupResource
	// Old is the size before the write. It is 0 for a new object.
	Old, New int
	// Terminating reports whether the object is being deleted, so that the write is a step to its end.
	Terminating bool
}

// admit returns an error if the write that replaces cur by obj, encoded as data, must not happen now.
func (s *Store) admit(ctx context.Context, obj Object, data []byte, cur *Record) error {
	if s.b.admit == nil {
		return nil
	}
	g := Growth{Resource: s.GroupResource, New: len(data), Terminating: obj.GetDeletionTimestamp() != nil}
	if cur != nil {
		g.Old = cur.size
	}
	return s.b.admit(ctx, g)
}

// newPendingWrite returns the entry that pendingWrites gets for a write of obj. It returns an error if
// the write is not admitted.
func (s *Store) newPendingWrite(ctx context.Context, key string, obj Object, data []byte,
	cur *Record) (*pendingWrite, error) {
	if err := s.admit(ctx, obj, data, cur); err != nil {
		return nil, err
	}
	if s.Alias != nil {
		converted, err := s.Alias.Convert(obj)
		if err != nil {
			return nil, err
		}
		// The entry has no decoded object, because the clients of the store that has the objects
		// seldom need an object that was just written through this alias.
		return &pendingWrite{key: key, data: data, attrs: s.b.attrs.intern(s.Attrs(converted), cur)}, nil
	}
	if s.Codec.Lossy() {
		// Decode what is stored, because readers must see the stored object, not obj.
		var err error
		if obj, err = s.Codec.Decode(data, 0); err != nil {
			return nil, err
		}
	}
	return &pendingWrite{key: key, data: data, attrs: s.b.attrs.intern(s.Attrs(obj), cur), obj: obj}, nil
}

// addPending records a write that is about to be sent. It returns false if the cache is not ready;
// the load of the cache will then include the write.
func (c *cache) addPending(w *pendingWrite) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.state != ready {
		return false
	}
	c.pending.add(w)
	return true
}

// deleteOnce deletes an object if cur is its present state. It returns the final state, or the
// result of the delete if another write came first.
func (s *Store) deleteOnce(ctx context.Context, key string, cur *Record) (*Record, *kv.WriteResult, error) {
	res, err := s.b.kv.Delete(ctx, s.fullKey(key), cur.Revision)
	switch {
	case err != nil:
		return nil, nil, translate(ctx, err)
	case !res.OK:
		return nil, &res, nil
	}
	return cur.last(res.Revision, s.FinalState), nil, nil
}

// outdated reports whether an unchanged object has to be written all the same, because it would now
// be encoded or encrypted differently.
func (s *Store) outdated(ctx context.Context, key string, cur *Record) (bool, error) {
	if cur.reencoded {
		return true, nil
	}
	if s.b.outdated == nil {
		return false, nil
	}
	old, err := s.b.outdated(ctx, s.fullKey(key))
	if errors.Is(err, kv.ErrUnreadable) {
		err = &UnreadableError{key, cur.Revision, err}
	}
	return old, err
}
