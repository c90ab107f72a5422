// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import "context"

// Gated is a field, or a group of fields, of a feature. O is the type of the objects.
type Gated[O any] struct {
	// Feature names the feature gate.
	Feature string
	// Visit reports whether an object has one of the fields. If drop is true, it clears them.
	Visit func(obj O, drop bool) bool
}

// GatedField returns the rule for a field that is a pointer. at returns the address of the field, or nil if
// an object lacks the field's parent.
func GatedField[O, F any](feature string, at func(obj O) **F) Gated[O] {
	return Gated[O]{Feature: feature, Visit: func(obj O, drop bool) bool {
		field := at(obj)
		set := field != nil && *field != nil
		if drop && set {
			*field = nil
		}
		return set
	}}
}

// GatedList returns the rule for a field that is a list. at returns the address of the field, or nil if an
// object lacks the field's parent.
func GatedList[O, E any](feature string, at func(obj O) *[]E) Gated[O] {
	return Gated[O]{Feature: feature, Visit: func(obj O, drop bool) bool {
		field := at(obj)
		set := field != nil && len(*field) > 0
		if drop && field != nil && *field != nil {
			*field = nil
		}
		return set
	}}
}

// DropGated makes a row clear the gated fields whose features are not enabled in each object that a client
// writes. As in Kubernetes, an update keeps the fields of a feature if the stored object has one of them.
func DropGated(row *Row, enabled func(feature string) bool) {
	for _, gated := range row.Gated {
		if !enabled(gated.Feature) {
			DropOnWrite(row, gated.Visit)
		}
	}
}

// DropOnWrite makes a row clear fields in each object that a client writes, unless the stored object has
// one of them. visit is as in Gated.
func DropOnWrite(row *Row, visit func(obj Object, drop bool) bool) {
	create := row.PrepareCreate
	row.PrepareCreate = func(ctx context.Context, obj Object) {
		visit(obj, true)
		if create != nil {
			create(ctx, obj)
		}
	}
	row.PrepareUpdate = dropOnUpdate(row.PrepareUpdate, visit)
	for i, s := range row.Subresources {
		if s.View {
			row.Subresources[i].PrepareUpdate = dropOnUpdate(s.PrepareUpdate, visit)
		}
	}
}

func dropOnUpdate(update func(ctx context.Context, obj, old Object),
	visit func(obj Object, drop bool) bool) func(ctx context.Context, obj, old Object) {
	return func(ctx context.Context, obj, old Object) {
		if !visit(old, false) {
			visit(obj, true)
		}
		if update != nil {
			update(ctx, obj, old)
		}
	}
}
