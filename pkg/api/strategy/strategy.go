// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strategy holds what the kinds with a spec and a status have in
// common: clients write the spec through the object and the status through its
// "status" subresource, and metadata.generation counts the changes of the spec.
//
// Its functions are pure and keep nothing.
package strategy

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
)

// Parts answers where an object of kind *T has its spec and its status.
type Parts[T, Spec, Status any] func(*T) (*Spec, *Status)

// Create drops the status and starts the generation.
func (p Parts[T, Spec, Status]) Create(ctx context.Context, obj *T) {
	p.ClearStatus(ctx, obj)
	meta(obj).SetGeneration(1)
}

// ClearStatus drops the status, for kinds that do not count generations.
func (p Parts[T, Spec, Status]) ClearStatus(_ context.Context, obj *T) {
	_, status := p(obj)
	*status = *new(Status)
}

// Update keeps the old status and counts a change of the spec.
func (p Parts[T, Spec, Status]) Update(ctx context.Context, obj, old *T) {
	p.KeepStatus(ctx, obj, old)
	spec, _ := p(obj)
	was, _ := p(old)
	Count(obj, old, equal.Values(spec, was))
}

// KeepStatus keeps the old status, for kinds that do not count generations.
func (p Parts[T, Spec, Status]) KeepStatus(_ context.Context, obj, old *T) {
	_, status := p(obj)
	_, was := p(old)
	*status = *was
}

// KeepSpec keeps the old spec: what an update of the status may not change.
func (p Parts[T, Spec, Status]) KeepSpec(_ context.Context, obj, old *T) {
	spec, _ := p(obj)
	was, _ := p(old)
	*spec = *was
}

// KeepSpecAndMeta keeps the old spec and all of the old metadata that a client
// could write, as the statuses of the younger kinds do.
func (p Parts[T, Spec, Status]) KeepSpecAndMeta(ctx context.Context, obj, old *T) {
	p.KeepSpec(ctx, obj, old)
	metav1.ResetObjectMetaForStatus(meta(obj), meta(old))
}

// KeepSpecAndAllMeta keeps the old spec and metadata; of the new metadata only who
// owns the fields of the status counts.
func (p Parts[T, Spec, Status]) KeepSpecAndAllMeta(ctx context.Context, obj, old *T) {
	p.KeepSpec(ctx, obj, old)
	owners := meta(obj).GetManagedFields()
	*objectMeta(obj) = *objectMeta(old).DeepCopy()
	meta(obj).SetManagedFields(owners)
}

// StartGeneration sets the generation of a new object whose kind has no status.
func StartGeneration[T any](_ context.Context, obj *T) { meta(obj).SetGeneration(1) }

// Count sets the generation of obj: the old one, or the next when what it
// counts is not the same any more.
func Count[T any](obj, old *T, same bool) {
	generation := meta(old).GetGeneration()
	if !same {
		generation++
	}
	meta(obj).SetGeneration(generation)
}

// CountSpec counts the changes of the part of a kind that has no status.
func CountSpec[T, Spec any](spec func(*T) *Spec) func(context.Context, *T, *T) {
	return func(_ context.Context, obj, old *T) {
		Count(obj, old, equal.Values(spec(obj), spec(old)))
	}
}

func meta[T any](obj *T) metav1.Object { return any(obj).(metav1.Object) }

func objectMeta[T any](obj *T) *metav1.ObjectMeta {
	return any(obj).(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// StatusVerbs are the verbs of subresources that are views of their object.
func StatusVerbs() []string { return []string{"get", "patch", "update"} }

// View declares a subresource that shows the object itself and updates a part of it.
func View(name string, resetFields ...string) resource.Subresource {
	return resource.Subresource{Name: name, Verbs: StatusVerbs(), View: true, ResetFields: resetFields}
}
