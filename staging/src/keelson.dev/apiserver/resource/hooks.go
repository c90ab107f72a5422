// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrBeingDeleted is returned by BeforeDelete if an earlier delete of the object is still in
// progress and this delete changes nothing.
var ErrBeingDeleted = errors.New("deletion is pending")

// Hooks update other state together with an object, for example the allocation of a service's
// addresses. Each function may be nil. The functions run as part of the write, may be called again
// if another client wrote the object first, and must not change anything if dryRun is true.
type Hooks[O any] struct {
	// BeforeCreate runs before PrepareCreate and validation, on an object that already has its name
	// and namespace. After each successful call, the server calls finish exactly once; success
	// reports whether the object was stored. finish may be nil.
	BeforeCreate func(ctx context.Context, obj O, dryRun bool) (finish func(success bool), err error)
	// BeforeUpdate is the equivalent of BeforeCreate for updates. It runs before PrepareUpdate.
	BeforeUpdate func(ctx context.Context, obj, old O, dryRun bool) (finish func(success bool), err error)
	// BeforeDelete may reject a delete with an error, or change its options. If an earlier delete
	// is still in progress, it may return ErrBeingDeleted.
	BeforeDelete func(ctx context.Context, obj O, options *metav1.DeleteOptions) error
	// AfterCreate, AfterUpdate and AfterDelete run after a write has been stored. They do not run
	// for dry runs.
	AfterCreate func(ctx context.Context, obj O)
	AfterUpdate func(ctx context.Context, obj, old O)
	AfterDelete func(ctx context.Context, obj O)
	// KeepOnUpdate reports whether an update that removes the last finalizer of an object being
	// deleted leaves the object in place (namespaces whose spec.finalizers are not empty). Nil
	// means false.
	KeepOnUpdate func(obj, old O) bool
	// Ending reports whether a delete keeps an object that has no finalizers. The object is then
	// stored as being deleted, with the changes that the hook has made to it (namespaces, whose
	// contents are deleted first). Nil means false.
	Ending func(ctx context.Context, obj O) (keep bool)
}

func eraseHooks[T any](h Hooks[*T]) (out Hooks[Object]) {
	if f := h.BeforeCreate; f != nil {
		out.BeforeCreate = func(ctx context.Context, obj Object, dryRun bool) (func(bool), error) {
			return f(ctx, any(obj).(*T), dryRun)
		}
	}
	if f := h.BeforeUpdate; f != nil {
		out.BeforeUpdate = func(ctx context.Context, obj, old Object, dryRun bool) (func(bool), error) {
			return f(ctx, any(obj).(*T), any(old).(*T), dryRun)
		}
	}
	if f := h.BeforeDelete; f != nil {
		out.BeforeDelete = func(ctx context.Context, obj Object, options *metav1.DeleteOptions) error {
			return f(ctx, any(obj).(*T), options)
		}
	}
	out.AfterCreate = eraseCtx(h.AfterCreate)
	out.AfterUpdate = eraseUpdate(h.AfterUpdate)
	out.AfterDelete = eraseCtx(h.AfterDelete)
	if f := h.KeepOnUpdate; f != nil {
		out.KeepOnUpdate = func(obj, old Object) bool { return f(any(obj).(*T), any(old).(*T)) }
	}
	if f := h.Ending; f != nil {
		out.Ending = func(ctx context.Context, obj Object) bool { return f(ctx, any(obj).(*T)) }
	}
	return out
}
