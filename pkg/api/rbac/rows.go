// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac declares roles and their bindings.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package rbac

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/resource"
)

// CheckEscalation rejects, with 403, storing obj in place of old (nil on create) if the user would
// gain or grant rights that the user lacks.
type CheckEscalation func(ctx context.Context, obj, old runtime.Object) error

// Rows returns the rows of the group, in discovery order. Their writes are checked by check, which
// may be nil.
func Rows(check CheckEscalation) []*resource.Row {
	return []*resource.Row{
		clusterRoleBindingRow(check),
		clusterRoleRow(check),
		roleBindingRow(check),
		roleRow(check),
	}
}

// escalationHooks check every write of a role or binding. T is its type.
func escalationHooks[T any](check CheckEscalation) resource.Hooks[*T] {
	if check == nil {
		return resource.Hooks[*T]{}
	}
	return resource.Hooks[*T]{
		BeforeCreate: func(ctx context.Context, obj *T, _ bool) (func(bool), error) {
			return nil, check(ctx, any(obj).(runtime.Object), nil)
		},
		BeforeUpdate: func(ctx context.Context, obj, old *T, _ bool) (func(bool), error) {
			return nil, check(ctx, any(obj).(runtime.Object), any(old).(runtime.Object))
		},
	}
}
