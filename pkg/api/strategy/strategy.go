// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strategy has functions that prepare objects with a spec and a status before they are
// stored. Clients write the spec through the object, and the status through the subresource
// "status". metadata.generation counts the changes of the spec.
//
// Its functions are pure: they do no I/O and keep no state.
package strategy

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
)

// Parts returns pointers to the spec and to the status of an object of type *T.
type Parts[T, Spec, Status any] func(*T) (*Spec, *Status)

// Create prepares a new object: it clears the status and sets the generation to 1.
func (p Parts[T, Spec, Status]) Create(ctx context.Context, obj *T) {
	p.ClearStatus(ctx, obj)
	meta(obj).SetGeneration(1)
}

// ClearStatus prepares a new object of a kind without a generation: it clears the status.
func (p Parts[T, Spec, Status]) ClearStatus(_ context.Context, obj *T) {
	_, status := p(obj)
	*status = *new(Status)
}

// Update prepares an update of an object: it keeps the old status and increments the generation if
// the spec has changed.
func (p Parts[T, Spec, Status]) Update(ctx context.Context, obj, old *T) {
	p.KeepStatus(ctx, obj, old)
	spec, _ := p(obj)
	was, _ := p(old)
	Count(obj, old, equal.Values(spec, was))
}

// KeepStatus prepares an update of an object of a kind without a generation: it keeps the old
// status.
func (p Parts[T, Spec, Status]) KeepStatus(_ context.Context, obj, old *T) {
	_, status := p(obj)
	_, was := p(old)
	*status = *was
}

// KeepSpec prepares an update of the status: it keeps the old spec.
func (p Parts[T, Spec, Status]) KeepSpec(_ context.Context, obj, old *T) {
	spec, _ := p(obj)
	was, _ := p(old)
	*spec = *was
}

// KeepSpecAndMeta prepares an update of the status: it keeps the old spec and all old metadata that
// clients can write.
func (p Parts[T, Spec, Status]) KeepSpecAndMeta(ctx context.Context, obj, old *T) {
	p.KeepSpec(ctx, obj, old)
	metav1.ResetObjectMetaForStatus(meta(obj), meta(old))
}

// KeepSpecAndAllMeta prepares an update of the status: it keeps the old spec and all old metadata
// except for the managed fields.
func (p Parts[T, Spec, Status]) KeepSpecAndAllMeta(ctx context.Context, obj, old *T) {
	p.KeepSpec(ctx, obj, old)
	owners := meta(obj).GetManagedFields()
	*objectMeta(obj) = *objectMeta(old).DeepCopy()
	meta(obj).SetManagedFields(owners)
}

// StartGeneration sets the generation of a new object whose kind has no status.
func StartGeneration[T any](_ context.Context, obj *T) { meta(obj).SetGeneration(1) }

// Count sets the generation of obj to that of old. Unless same is true, it then increments the
// generation.
func Count[T any](obj, old *T, same bool) {
	generation := meta(old).GetGeneration()
	if !same {
		generation++
	}
	meta(obj).SetGeneration(generation)
}

// CountSpec returns a function that prepares updates of objects without a status. The function
// increments the generation if the part that spec returns has changed.
func CountSpec[T, Spec any](spec func(*T) *Spec) func(context.Context, *T, *T) {
	return func(_ context.Context, obj, old *T) {
		Count(obj, old, equal.Values(spec(obj), spec(old)))
	}
}

func meta[T any](obj *T) metav1.Object { return any(obj).(metav1.Object) }

func objectMeta[T any](obj *T) *metav1.ObjectMeta {
	return any(obj).(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// StatusVerbs returns the verbs of a subresource that is read and updated like an object, such as
// "status".
func StatusVerbs() []string { return []string{"get", "patch", "update"} }

// View returns a subresource that returns the whole object when it is read, and changes only a part
// of the object when it is updated. resetFields are the fields that an update through the
// subresource cannot change, so that server-side apply never records an owner of them.
func View(name string, resetFields ...string) resource.Subresource {
	return resource.Subresource{Name: name, Verbs: StatusVerbs(), View: true, ResetFields: resetFields}
}
