// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/store/kv"
)

// ReadOnly makes an Interface of a Reader whose objects are computed, not stored. All writes return
// MethodNotSupported (405). All numbers in its Stats are zero.
type ReadOnly struct {
	Reader
	Resource schema.GroupResource // resource that errors name
}

var _ Interface = ReadOnly{}

func (r ReadOnly) refuse(verb string) error { return apierrors.NewMethodNotSupported(r.Resource, verb) }

// Create implements Writer.
func (r ReadOnly) Create(context.Context, string, Object, int64, ...kv.Unchanged) (*Record, error) {
	return nil, r.refuse("create")
}

// Update implements Writer.
func (r ReadOnly) Update(context.Context, string, UpdateFunc) (*Record, error) {
	return nil, r.refuse("update")
}

// Delete implements Writer.
func (r ReadOnly) Delete(context.Context, string, func(*Record) error) (*Record, error) {
	return nil, r.refuse("delete")
}

// DeleteCorrupt implements Writer.
func (r ReadOnly) DeleteCorrupt(context.Context, string, bool) error { return r.refuse("delete") }

// UpdateAll implements Batcher.
func (r ReadOnly) UpdateAll(
	context.Context, []string, func(context.Context, int, *Record) (Object, error),
) ([]error, error) {
	return nil, r.refuse("update")
}

// DeleteAll implements Batcher.
func (r ReadOnly) DeleteAll(context.Context, []*Record) (bool, error) {
	return false, r.refuse("delete")
}

// Stats implements Monitor.
func (ReadOnly) Stats() Stats { return Stats{} }

// Count implements Monitor.
func (ReadOnly) Count(context.Context) (int64, error) { return 0, nil }

// Close implements Interface.
func (ReadOnly) Close() {}
