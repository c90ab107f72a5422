// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/apiserver/store/kv"
)

// Create implements Interface.
func (s *Store) Create(ctx context.Context, key string, obj Object, ttl int64, conditions ...kv.Unchanged) (*Record, error) {
	if err := s.checkKey(key); err != nil {
		return nil, err
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != "0" {
		return nil, apierrors.NewInternalError(errors.New("resourceVersion should not be set on objects to be created"))
	}
	// Whoever watches from the revision of what is made here expects to see what
	// becomes of it.
	s.cache.start()
	data, err := s.encode(obj)
	if err != nil {
		return nil, err
	}
	rec, res, err := s.put(ctx, key, obj, data, nil, ttl, conditions...)
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

// Update implements Interface.
func (s *Store) Update(ctx context.Context, key string, fn UpdateFunc) (*Record, error) {
	cur, fresh, err := s.present(ctx, key)
	for err == nil {
		var next *Record
		var conflict *kv.WriteResult
		next, conflict, err = s.attempt(ctx, key, cur, fresh, fn)
		if conflict != nil {
			cur, err = s.found(key, conflict.Current)
			fresh = true
			continue
		}
		var r refusal
		refused := errors.As(err, &r)
		if fresh || next != nil || err != nil && !refused {
			return next, cmp.Or(r.error, err)
		}
		// fn refused a state from the cache, or wanted no change to it: that counts
		// only if it is still the state.
		decided := cur.Revision
		cur, fresh, err = s.verify(ctx, key, cur, r.error)
		if err != nil || cur.Revision != decided {
			continue
		}
		if old, err := s.outdated(ctx, key, cur); err != nil || !old {
			return cur, translate(ctx, err)
		}
	}
	return nil, err
}

// refusal is an error of an UpdateFunc, which speaks of the state that it was given. Any
// other error ends an update: when a write has failed nobody knows what became of
// it, and trying again might do it twice, or find what it did itself in its way.
type refusal struct{ error }

// attempt applies fn to cur once. It returns no record and no conflict when fn
// changes nothing and cur may be old. Only errors that cur is the reason of are refusals.
func (s *Store) attempt(ctx context.Context, key string, cur *Record, fresh bool, fn UpdateFunc) (*Record, *kv.WriteResult, error) {
	obj, err := fn(ctx, cur)
	if err != nil {
		return nil, nil, refusal{err}
	}
	if obj == nil {
		return s.deleteOnce(ctx, key, cur)
	}
	data, err := s.encode(obj)
	if err != nil {
		return nil, nil, refusal{err}
	}
	if len(data) == cur.size && bytes.Equal(data, cur.Bytes()) {
		if !fresh {
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
	rec, res, err := s.put(ctx, key, obj, data, cur, ttl)
	if err == nil && !res.OK {
		return nil, &res, nil
	}
	return rec, nil, err
}

// Delete implements Interface.
func (s *Store) Delete(ctx context.Context, key string, check func(cur *Record) error) (*Record, error) {
	cur, fresh, err := s.present(ctx, key)
	for err == nil {
		if check != nil {
			err = check(cur)
		}
		if err != nil {
			if fresh {
				break
			}
			cur, fresh, err = s.verify(ctx, key, cur, err)
			continue
		}
		last, conflict, derr := s.deleteOnce(ctx, key, cur)
		if conflict == nil {
			return last, derr
		}
		cur, err = s.found(key, conflict.Current)
		fresh = true
	}
	return nil, err
}

// DeleteAll implements Interface.
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

// present returns an object's state for a first try: the cache's if it has one, or
// a later one that this server wrote and the cache has not been told of. fresh says
// that it is known to be the present state.
func (s *Store) present(ctx context.Context, key string) (cur *Record, fresh bool, err error) {
	if err := s.checkKey(key); err != nil {
		return nil, false, err
	}
	s.cache.start()
	cur = s.cached(key)
	if r := s.cache.pending.latest(key); r != nil && (cur == nil || cur.Revision < r.Revision) {
		cur = s.view(r)
	}
	if cur != nil {
		return cur, false, nil
	}
	cur, err = s.getCurrent(ctx, key)
	return cur, true, err
}

// verify fetches the present state after something was decided on cached one.
// It returns reason when the cached state was the present one.
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

// put writes obj in the place of cur, which is nil for a new object. The record
// it returns is the one that the cache will have.
func (s *Store) put(ctx context.Context, key string, obj Object, data []byte, cur *Record, ttl int64, conditions ...kv.Unchanged) (*Record, kv.WriteResult, error) {
	w, err := s.newPendingWrite(key, obj, data, cur)
	if err != nil {
		return nil, kv.WriteResult{}, err
	}
	var expect int64
	if cur != nil {
		expect = cur.Revision
	}
	expected := s.cache.expect(w)
	res, err := s.b.kv.Put(ctx, s.fullKey(key), data, expect, ttl, conditions...)
	if err != nil || !res.OK {
		if expected {
			s.cache.pending.remove(w)
		}
		return nil, res, translate(ctx, err)
	}
	return s.writtenView(w.recordAt(s.cache, res.Revision), obj), res, nil
}

// own is a write that the cache is to be told of.
func (s *Store) newPendingWrite(key string, obj Object, data []byte, cur *Record) (*pendingWrite, error) {
	if s.Alias != nil {
		converted, err := s.Alias.Convert(obj)
		if err != nil {
			return nil, err
		}
		// Who writes through a twin is seldom the one whose readers ask for the other form.
		return &pendingWrite{key: key, data: data, attrs: s.b.attrs.intern(s.Attrs(converted), cur)}, nil
	}
	if s.Codec.Lossy() {
		// Readers see what has been stored, not what was meant to be.
		var err error
		if obj, err = s.Codec.Decode(data, 0); err != nil {
			return nil, err
		}
	}
	return &pendingWrite{key: key, data: data, attrs: s.b.attrs.intern(s.Attrs(obj), cur), obj: obj}, nil
}

// expect announces a write, if the cache is there to see it.
func (c *cache) expect(w *pendingWrite) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.state != ready {
		return false
	}
	c.pending.add(w)
	return true
}

func (s *Store) deleteOnce(ctx context.Context, key string, cur *Record) (*Record, *kv.WriteResult, error) {
	res, err := s.b.kv.Delete(ctx, s.fullKey(key), cur.Revision)
	switch {
	case err != nil:
		return nil, nil, translate(ctx, err)
	case !res.OK:
		return nil, &res, nil
	}
	return cur.last(res.Revision, s.End), nil, nil
}

// outdated reports whether the stored form of an object is to be renewed although
// the object has not changed: it is written, or encrypted, otherwise by now.
func (s *Store) outdated(ctx context.Context, key string, cur *Record) (bool, error) {
	if cur.renewed {
		return true, nil
	}
	if s.b.outdated != nil {
		return s.b.outdated(ctx, s.fullKey(key))
	}
	return false, nil
}

// encode leaves the words to the codec: one that converts has them from afar, and
// they are for the client.
func (s *Store) encode(obj Object) ([]byte, error) { return s.Codec.Encode(obj) }
