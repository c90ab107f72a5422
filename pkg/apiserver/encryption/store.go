// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/storage/value"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/tracing"
)

// source returns the transformer of a resource, which encrypts and decrypts values.
type source interface {
	TransformerForResource(schema.GroupResource) value.Transformer
}

// Store is a kv.Store that keeps its values encrypted in another one.
type Store struct {
	inner    kv.Store
	resource func(key string) (schema.GroupResource, bool)
	source   source
	// transformers caches the transformer of each resource. A reload of the configuration changes the
	// keys in a transformer, and does not replace the transformer.
	transformers sync.Map // keys are of type schema.GroupResource
}

var _ kv.Store = &Store{}

// transformer returns the transformer for the value of a key, or nil if it is not encrypted.
func (s *Store) transformer(key string) value.Transformer {
	gr, ok := s.resource(key)
	if !ok {
		return nil
	}
	if t, ok := s.transformers.Load(gr); ok {
		return t.(value.Transformer) // only transformers are stored in the map
	}
	t := s.source.TransformerForResource(gr)
	s.transformers.Store(gr, t)
	return t
}

// open decrypts a value. The result stale reports whether writing the value now would encrypt it
// differently.
func (s *Store) open(ctx context.Context, key string, data []byte) (plain []byte, stale bool, err error) {
	t := s.transformer(key)
	if t == nil {
		return data, false, nil
	}
	plain, stale, err = t.TransformFromStorage(ctx, data, value.DefaultContext(key))
	if err != nil {
		return nil, false, &unreadable{err}
	}
	return plain, stale, nil
}

// unreadable is a kv.ErrUnreadable with its reason. As in Kubernetes, the message does not contain
// the key.
type unreadable struct{ reason error }

func (e *unreadable) Error() string   { return e.reason.Error() }
func (e *unreadable) Unwrap() []error { return []error{kv.ErrUnreadable, e.reason} }

// openItem decrypts the value of an item, or sets the item's error.
func (s *Store) openItem(ctx context.Context, it *kv.Item) {
	it.Value, _, it.Err = s.open(ctx, it.Key, it.Value)
}

// Get implements kv.Store.
func (s *Store) Get(ctx context.Context, key string) (*kv.Item, int64, error) {
	it, rev, err := s.inner.Get(ctx, key)
	if err != nil || it == nil {
		return it, rev, err
	}
	opened := *it
	s.openItem(ctx, &opened)
	tracing.Current(ctx).Result("TransformFromStorage", opened.Err)
	return &opened, rev, nil
}

// noAnswer reports whether a decryption failed because a key server did not answer.
func noAnswer(err error) bool {
	var several utilerrors.Aggregate // one error for each provider
	if errors.As(err, &several) && slices.ContainsFunc(several.Errors(), noAnswer) {
		return true
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// Outdated reports whether writing the value of a key now would encrypt it differently.
func (s *Store) Outdated(ctx context.Context, key string) (bool, error) {
	it, _, err := s.inner.Get(ctx, key)
	if err != nil || it == nil {
		return false, err
	}
	_, stale, err := s.open(ctx, key, it.Value)
	return stale, err
}

// Range implements kv.Store. If a key server does not answer for a value, Range does not send it
// the later values, because each of them could take as long. It returns the same error for them.
func (s *Store) Range(ctx context.Context, opts kv.RangeOptions) (kv.RangeResult, error) {
	res, err := s.inner.Range(ctx, opts)
	if err != nil {
		return res, err
	}
	items := make([]kv.Item, len(res.Items))
	copy(items, res.Items)
	var silent error
	for i := range items {
		if silent != nil {
			items[i].Value, items[i].Err = nil, silent
			continue
		}
		if s.openItem(ctx, &items[i]); noAnswer(items[i].Err) {
			silent = items[i].Err
		}
	}
	res.Items = items
	return res, nil
}

// Put implements kv.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	data, err := s.seal(ctx, key, data)
	tracing.Current(ctx).Result("TransformToStorage", err)
	if err != nil {
		return kv.WriteResult{}, err
	}
	return s.opened(ctx)(s.inner.Put(ctx, key, data, expect, ttl, conditions...))
}

// Delete implements kv.Store.
func (s *Store) Delete(ctx context.Context, key string, expect int64) (kv.WriteResult, error) {
	return s.opened(ctx)(s.inner.Delete(ctx, key, expect))
}

// WriteAll implements kv.Store.
func (s *Store) WriteAll(ctx context.Context, changes []kv.Change) (kv.WriteResult, error) {
	sealed := slices.Clone(changes)
	for i := range sealed {
		c := &sealed[i]
		if c.Delete {
			continue
		}
		var err error
		if c.Value, err = s.seal(ctx, c.Key, c.Value); err != nil {
			return kv.WriteResult{}, err
		}
	}
	return s.inner.WriteAll(ctx, sealed)
}

// seal encrypts a value.
func (s *Store) seal(ctx context.Context, key string, data []byte) ([]byte, error) {
	t := s.transformer(key)
	if t == nil {
		return data, nil
	}
	sealed, err := t.TransformToStorage(ctx, data, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypt %q: %w", key, err)
	}
	return sealed, nil
}

// opened returns a function that decrypts the current value in the result of a write.
func (s *Store) opened(ctx context.Context) func(kv.WriteResult, error) (kv.WriteResult, error) {
	return func(res kv.WriteResult, err error) (kv.WriteResult, error) {
		if err != nil || res.Current == nil {
			return res, err
		}
		current := *res.Current
		s.openItem(ctx, &current)
		res.Current = &current
		return res, nil
	}
}

// Watch implements kv.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	w, err := s.inner.Watch(ctx, prefix, from)
	if err != nil {
		return nil, err
	}
	return &watch{w, s}, nil
}

// Revision implements kv.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.inner.Revision(ctx) }

// Compact implements kv.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	return s.inner.Compact(ctx, revision)
}

// watch is a kv.Watch that decrypts the values in events.
type watch struct {
	kv.Watch
	s *Store
}

// Next implements kv.Watch.
func (w *watch) Next(ctx context.Context) (kv.Batch, error) {
	b, err := w.Watch.Next(ctx)
	if err != nil || len(b.Events) == 0 {
		return b, err
	}
	events := make([]kv.Event, len(b.Events))
	copy(events, b.Events)
	for i := range events {
		if !events[i].Deleted {
			w.s.openItem(ctx, &events[i].Item)
		}
	}
	b.Events = events
	return b, nil
}
