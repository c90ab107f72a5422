// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac declares roles and their bindings.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package rbac

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/resource"
)

// CheckEscalation returns an error with code 403 if obj, a role or binding, grants rights that the
// user who writes it does not have. obj replaces old, which is nil on create.
type CheckEscalation func(ctx context.Context, obj, old runtime.Object) error

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
// check is called when roles and bindings are written. It may be nil.
func Rows(check CheckEscalation) []*resource.Row {
	return []*resource.Row{
		clusterRoleBindingRow(check),
		clusterRoleRow(check),
		roleBindingRow(check),
		roleRow(check),
	}
}

// escalationHooks returns hooks that call check for every write of an object of type *T, a role or
// binding.
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
