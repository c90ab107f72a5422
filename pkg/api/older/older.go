// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package older declares older versions of kinds that have another form than the stored version
// but the same meaning. Objects are converted when they are read and written.
package older

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/resource"
)

// Version is an older version of a kind.
type Version struct {
	Name       string
	Deprecated string
	// Stored and Object are empty objects of the stored version and of this version. List is an
	// empty list of this version.
	Stored, Object resource.Object
	List           runtime.Object
	// Convert converts in to out, in either direction. out may share memory with in.
	Convert func(in, out resource.Object) error
	// Default sets the defaults of this version. It may be nil.
	Default func(resource.Object)
}

// Row returns the version in the form that a row needs.
func (v *Version) Row() resource.Version {
	return resource.Version{
		Name:        v.Name,
		Deprecated:  v.Deprecated,
		New:         func() resource.Object { return blank(v.Object) },
		NewList:     func() runtime.Object { return v.List.DeepCopyObject() },
		FromStorage: func(o resource.Object) (resource.Object, error) { return v.convert(o, v.Object) },
		ToStorage:   func(o resource.Object) (resource.Object, error) { return v.convert(o, v.Stored) },
		Default:     v.Default,
	}
}

func blank(o resource.Object) resource.Object {
	copied, ok := o.DeepCopyObject().(resource.Object)
	if !ok {
		panic(fmt.Sprintf("a copy of %T is none", o))
	}
	return copied
}

// convert returns o as an object of into's type. It does not change o.
func (v *Version) convert(o, into resource.Object) (resource.Object, error) {
	out := blank(into)
	if err := v.Convert(blank(o), out); err != nil {
		return nil, err
	}
	return out, nil
}

// As returns a function that applies fill, which works on the stored version, to objects of this
// version.
func (v *Version) As(fill func(resource.Object)) func(resource.Object) {
	return func(o resource.Object) {
		stored, err := v.convert(o, v.Stored)
		if err != nil {
			return // the conversion for storage reports the error
		}
		fill(stored)
		kind := o.GetObjectKind().GroupVersionKind()
		if v.Convert(stored, o) == nil {
			o.GetObjectKind().SetGroupVersionKind(kind)
		}
	}
}
