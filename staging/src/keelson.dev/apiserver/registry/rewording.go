// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// rewording presents a live object to structured-merge-diff in the spelling of the configuration
// that is being applied. A value that the configuration only writes differently (an empty list that
// is not stored, "1000m" instead of "1") is then no change: it causes no conflict and is not taken
// from its owner. A rewording is used for one apply.
type rewording struct {
	managedfields.TypeConverter
	config runtime.Object
	kind   schema.GroupVersionKind
	// settle returns an object as it is after storing and reading it. It may modify its argument.
	settle func(runtime.Object) (runtime.Object, error)
}

// ObjectToTyped implements managedfields.TypeConverter.
func (w rewording) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	live, err := w.TypeConverter.ObjectToTyped(obj, opts...)
	if err != nil || obj == w.config {
		return live, err
	}
	if reworded, err := w.reword(obj, opts); err == nil {
		return reworded, nil
	}
	return live, nil // the merge will return the same error again
}

func (w rewording) reword(obj runtime.Object, opts []typed.ValidationOptions) (*typed.TypedValue, error) {
	live, err := w.document(obj, opts)
	if err != nil {
		return nil, err
	}
	config, err := w.TypeConverter.ObjectToTyped(w.config)
	if err != nil {
		return nil, err
	}
	merged, err := live.Merge(config)
	if err != nil {
		return nil, err
	}
	next, err := w.TypedToObject(merged)
	if err != nil {
		return nil, err
	}
	if next, err = w.settle(next.DeepCopyObject()); err != nil {
		return nil, err
	}
	settled, err := w.document(next, opts)
	if err != nil {
		return nil, err
	}
	written, err := changes(live, merged)
	if err != nil {
		return nil, err
	}
	stored, err := changes(live, settled)
	if err != nil {
		return nil, err
	}
	same := written.Difference(stored)
	if same.Empty() {
		return live, nil
	}
	return live.Merge(merged.ExtractItems(same, typed.WithAppendKeyFields()))
}

// document returns an object as clients receive it, without empty lists. In Go values, empty lists
// differ from nil.
func (w rewording) document(obj runtime.Object, opts []typed.ValidationOptions) (*typed.TypedValue, error) {
	if _, dynamic := obj.(*unstructured.Unstructured); !dynamic {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(w.kind)
		obj = u
	}
	return w.TypeConverter.ObjectToTyped(obj, opts...)
}

// changes returns the fields in which two objects differ.
func changes(a, b *typed.TypedValue) (*fieldpath.Set, error) {
	c, err := a.Compare(b)
	if err != nil {
		return nil, err
	}
	return c.Added.Union(c.Modified).Union(c.Removed).Leaves(), nil
}
