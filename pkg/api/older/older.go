// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package older makes the older versions of kinds that differ from the stored version in
// form alone. Their objects are converted as they come and go, and mean what those of
// the stored version mean.
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
	// Stored and Object are empty objects of the stored and of this version, List
	// is an empty list of this version's.
	Stored, Object resource.Object
	List           runtime.Object
	// Convert fills out, of one of the two versions, from in, of the other, with which
	// it may share.
	Convert func(in, out resource.Object) error
	// Default fills what is unset in an object of this version; nil: nothing.
	Default func(resource.Object)
}

// Row is the version as a row has it.
func (v *Version) Row() resource.Version {
	return resource.Version{
		Name:        v.Name,
		Deprecated:  v.Deprecated,
		New:         func() resource.Object { return blank(v.Object) },
		NewList:     func() runtime.Object { return v.List.DeepCopyObject() },
		FromStorage: func(o resource.Object) (resource.Object, error) { return v.turn(o, v.Object) },
		ToStorage:   func(o resource.Object) (resource.Object, error) { return v.turn(o, v.Stored) },
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

// turn makes an object like into of o, which stays as it is.
func (v *Version) turn(o, into resource.Object) (resource.Object, error) {
	out := blank(into)
	if err := v.Convert(blank(o), out); err != nil {
		return nil, err
	}
	return out, nil
}

// As fills objects of this version as fill does those of the stored one.
func (v *Version) As(fill func(resource.Object)) func(resource.Object) {
	return func(o resource.Object) {
		stored, err := v.turn(o, v.Stored)
		if err != nil {
			return // as when the object is converted to be stored, which tells
		}
		fill(stored)
		kind := o.GetObjectKind().GroupVersionKind()
		if v.Convert(stored, o) == nil {
			o.GetObjectKind().SetGroupVersionKind(kind)
		}
	}
}
