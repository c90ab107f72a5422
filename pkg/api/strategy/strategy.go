// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strategy has preparation functions for kinds with a spec and a status: clients write
// the spec through the object and the status through the subresource "status", and
// metadata.generation counts changes of the spec.
//
// Its functions are pure: they do no I/O and keep no state.
package strategy

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
)

// Parts returns the spec and the status of an object of type *T.
type Parts[T, Spec, Status any] func(*T) (*Spec, *Status)

// Create clears the status and sets the generation to 1.
func (p Parts[T, Spec, Status]) Create(ctx context.Context, obj *T) {
	p.ClearStatus(ctx, obj)
	meta(obj).SetGeneration(1)
}

// ClearStatus clears the status. It is for kinds without a generation.
func (p Parts[T, Spec, Status]) ClearStatus(_ context.Context, obj *T) {
	_, status := p(obj)
	*status = *new(Status)
}

// Update keeps the old status and increments the generation if the spec has changed.
func (p Parts[T, Spec, Status]) Update(ctx context.Context, obj, old *T) {
	p.KeepStatus(ctx, obj, old)
	spec, _ := p(obj)
	was, _ := p(old)
	Count(obj, old, equal.Values(spec, was))
}

// KeepStatus keeps the old status. It is for kinds without a generation.
func (p Parts[T, Spec, Status]) KeepStatus(_ context.Context, obj, old *T) {
	_, status := p(obj)
	_, was := p(old)
	*status = *was
}

// KeepSpec keeps the old spec in an update of the status.
func (p Parts[T, Spec, Status]) KeepSpec(_ context.Context, obj, old *T) {
	spec, _ := p(obj)
	was, _ := p(old)
	*spec = *was
}

// KeepSpecAndMeta keeps the old spec and all of the old metadata that clients can write, in an
// update of the status.
func (p Parts[T, Spec, Status]) KeepSpecAndMeta(ctx context.Context, obj, old *T) {
	p.KeepSpec(ctx, obj, old)
	metav1.ResetObjectMetaForStatus(meta(obj), meta(old))
}

// KeepSpecAndAllMeta keeps the old spec and all of the old metadata, except for managed fields,
// in an update of the status.
func (p Parts[T, Spec, Status]) KeepSpecAndAllMeta(ctx context.Context, obj, old *T) {
	p.KeepSpec(ctx, obj, old)
	owners := meta(obj).GetManagedFields()
	*objectMeta(obj) = *objectMeta(old).DeepCopy()
	meta(obj).SetManagedFields(owners)
}

// StartGeneration sets the generation of a new object whose kind has no status.
func StartGeneration[T any](_ context.Context, obj *T) { meta(obj).SetGeneration(1) }

// Count sets the generation of obj to that of old and, unless same is true, increments it.
func Count[T any](obj, old *T, same bool) {
	generation := meta(old).GetGeneration()
	if !same {
		generation++
	}
	meta(obj).SetGeneration(generation)
}

// CountSpec returns a function that prepares updates, for kinds without a status. The function
// increments the generation if the given part has changed.
func CountSpec[T, Spec any](spec func(*T) *Spec) func(context.Context, *T, *T) {
	return func(_ context.Context, obj, old *T) {
		Count(obj, old, equal.Values(spec(obj), spec(old)))
	}
}

func meta[T any](obj *T) metav1.Object { return any(obj).(metav1.Object) }

func objectMeta[T any](obj *T) *metav1.ObjectMeta {
	return any(obj).(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// StatusVerbs returns the verbs of subresources that are views of their object.
func StatusVerbs() []string { return []string{"get", "patch", "update"} }

// View returns a subresource that shows the whole object and updates a part of it.
func View(name string, resetFields ...string) resource.Subresource {
	return resource.Subresource{Name: name, Verbs: StatusVerbs(), View: true, ResetFields: resetFields}
}
