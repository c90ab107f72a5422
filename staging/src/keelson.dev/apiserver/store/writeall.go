// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"keelson.dev/apiserver/store/kv"
)

// together is one of the objects of an UpdateAll.
type together struct {
	key   string
	cur   *Record // nil: not looked at
	fresh bool
	write *pendingWrite
	err   error // that speaks against it
}

// UpdateAll implements Interface.
func (s *Store) UpdateAll(ctx context.Context, keys []string, fn func(ctx context.Context, i int, cur *Record) (Object, error)) ([]error, error) {
	all := make([]together, len(keys))
	for i, key := range keys {
		all[i].key = key
	}
	for {
		if err := s.intendAll(ctx, all, fn); err != nil {
			return nil, err
		}
		if refused := refusals(all); refused != nil {
			return refused, nil
		}
		done, err := s.writeAll(ctx, all)
		if err != nil || done {
			return nil, err
		}
		// Something has interfered: the present states decide.
		for i := range all {
			all[i] = together{key: all[i].key, fresh: true}
		}
	}
}

// intendAll has fn say what is to be written. Objects are looked at side by side.
func (s *Store) intendAll(ctx context.Context, all []together, fn func(ctx context.Context, i int, cur *Record) (Object, error)) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			for i := int(next.Add(1) - 1); i < len(all) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				all[i].err = s.intend(ctx, &all[i], func(ctx context.Context, cur *Record) (Object, error) { return fn(ctx, i, cur) })
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

func (s *Store) intend(ctx context.Context, t *together, fn UpdateFunc) (err error) {
	if t.fresh {
		t.cur, err = s.getCurrent(ctx, t.key)
	} else {
		t.cur, t.fresh, err = s.present(ctx, t.key)
	}
	for err == nil {
		var obj Object
		if obj, err = fn(ctx, t.cur); err == nil {
			return s.keep(t, obj)
		}
		if t.fresh {
			break
		}
		t.cur, t.fresh, err = s.verify(ctx, t.key, t.cur, err)
	}
	return err
}

// keep takes down what an object is to be.
func (s *Store) keep(t *together, obj Object) error {
	if obj == nil {
		return errors.New("an object cannot be deleted together with others' changes")
	}
	data, err := s.encode(obj)
	if err != nil {
		return err
	}
	t.write, err = s.newPendingWrite(t.key, obj, data, t.cur)
	return err
}

func refusals(all []together) []error {
	var refused []error
	for i := range all {
		if all[i].err == nil {
			continue
		}
		if refused == nil {
			refused = make([]error, len(all))
		}
		refused[i] = all[i].err
	}
	return refused
}

// writeAll writes what is intended, unless an object has changed since.
func (s *Store) writeAll(ctx context.Context, all []together) (bool, error) {
	changes := make([]kv.Change, len(all))
	expected := make([]bool, len(all))
	for i := range all {
		t := &all[i]
		changes[i] = kv.Change{Key: s.fullKey(t.key), Expect: t.cur.Revision, Value: t.write.data}
		expected[i] = s.cache.expect(t.write)
	}
	res, err := s.b.kv.WriteAll(ctx, changes)
	if err == nil && res.OK {
		return true, nil
	}
	for i := range all {
		if expected[i] {
			s.cache.pending.remove(all[i].write)
		}
	}
	if errors.Is(err, kv.ErrTooLarge) {
		return false, err
	}
	return false, translate(ctx, err)
}
