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

// batchItem is one object of an UpdateAll.
type batchItem struct {
	key     string
	cur     *Record // state that fn was applied to
	current bool    // cur is known to be the present state; before cur is set: it must be read as such
	write   *pendingWrite
	err     error // the error of prepare
}

// UpdateAll implements Batcher.
func (s *Store) UpdateAll(ctx context.Context, keys []string,
	fn func(ctx context.Context, i int, cur *Record) (Object, error)) ([]error, error) {
	all := make([]batchItem, len(keys))
	for i, key := range keys {
		all[i].key = key
	}
	for {
		if err := s.prepareAll(ctx, all, fn); err != nil {
			return nil, err
		}
		if refused := refusals(all); refused != nil {
			return refused, nil
		}
		done, err := s.writeAll(ctx, all)
		if err != nil || done {
			return nil, err
		}
		// Another client has changed one of the objects meanwhile. Try again with the present
		// states of all.
		for i := range all {
			all[i] = batchItem{key: all[i].key, current: true}
		}
	}
}

// prepareAll applies fn to all objects concurrently.
func (s *Store) prepareAll(
	ctx context.Context, all []batchItem, fn func(ctx context.Context, i int, cur *Record) (Object, error),
) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		workers.Go(func() {
			for i := int(next.Add(1) - 1); i < len(all) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				all[i].err = s.prepare(ctx, &all[i], func(ctx context.Context, cur *Record) (Object, error) {
					return fn(ctx, i, cur)
				})
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

// prepare applies fn to one object and sets the object's write. If fn rejects a state that may be
// old, prepare calls it again with the present state. If fn rejects that too, prepare returns fn's
// error.
func (s *Store) prepare(ctx context.Context, t *batchItem, fn UpdateFunc) (err error) {
	if t.current {
		t.cur, err = s.getCurrent(ctx, t.key)
	} else {
		t.cur, t.current, err = s.present(ctx, t.key)
	}
	for err == nil {
		var obj Object
		if obj, err = fn(ctx, t.cur); err == nil {
			return s.setWrite(ctx, t, obj)
		}
		if t.current {
			break
		}
		t.cur, t.current, err = s.verify(ctx, t.key, t.cur, err)
	}
	return err
}

// setWrite records obj as the state to write for t's object.
func (s *Store) setWrite(ctx context.Context, t *batchItem, obj Object) error {
	if obj == nil {
		return errors.New("objects cannot be deleted by a batch of updates")
	}
	data, err := s.Codec.Encode(obj)
	if err != nil {
		return err
	}
	t.write, err = s.newPendingWrite(ctx, t.key, obj, data, t.cur)
	return err
}

// refusals returns the errors of the items, at their indexes. It returns nil if no item has an
// error.
func refusals(all []batchItem) []error {
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

// writeAll writes the next states of all items in one transaction. It returns false if another
// client has changed one of the objects meanwhile.
func (s *Store) writeAll(ctx context.Context, all []batchItem) (bool, error) {
	changes := make([]kv.Change, len(all))
	added := make([]bool, len(all))
	for i := range all {
		t := &all[i]
		changes[i] = kv.Change{Key: s.fullKey(t.key), Expect: t.cur.Revision, Value: t.write.data}
		added[i] = s.cache.addPending(t.write)
	}
	res, err := s.b.kv.WriteAll(ctx, changes)
	if err == nil && res.OK {
		return true, nil
	}
	for i := range all {
		if added[i] {
			s.cache.pending.remove(all[i].write)
		}
	}
	if errors.Is(err, kv.ErrTooLarge) {
		return false, err
	}
	return false, translate(ctx, err)
}
