// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package older declares older versions of kinds that have other fields than the stored version but
// the same meaning. The server converts objects of such a version when it reads and writes them. The
// function StoredAs makes the server store objects in an older version, so that the previous release
// can read them.
package older

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// Version describes an older version of a kind. Name is the name of the version. Deprecated is the
// deprecation warning for clients.
type Version struct {
	Name       string
	Deprecated string
	// Stored is an empty object of the stored version. Object is an empty object and List an empty
	// list of the older version.
	Stored, Object resource.Object
	List           runtime.Object
	// Convert converts its first argument to the version of the second. It must support both
	// directions: to and from the stored version. The result may share memory with the first
	// argument.
	Convert func(in, out resource.Object) error
	// Default sets the defaults of an object of the older version. It may be nil.
	Default func(resource.Object)
	// Removed is the minor version of the first Kubernetes release that does not serve the version
	// any more. It is 0 if there is none.
	Removed uint
}

// Row returns the description of an older API version for the kind's row of the kind table.
func (v *Version) Row() resource.Version {
	return resource.Version{
		Name:        v.Name,
		Deprecated:  v.Deprecated,
		New:         func() resource.Object { return blank(v.Object) },
		NewList:     func() runtime.Object { return v.List.DeepCopyObject() },
		FromStorage: func(o resource.Object) (resource.Object, error) { return v.convert(o, v.Object) },
		ToStorage:   func(o resource.Object) (resource.Object, error) { return v.convert(o, v.Stored) },
		Default:     v.Default,
		Removed:     v.Removed,
	}
}

func blank(o resource.Object) resource.Object {
	copied, ok := o.DeepCopyObject().(resource.Object)
	if !ok {
		panic(fmt.Sprintf("a copy of %T is none", o))
	}
	return copied
}

// convert returns o converted to the type of into. It does not change o.
func (v *Version) convert(o, into resource.Object) (resource.Object, error) {
	out := blank(into)
	if err := v.Convert(blank(o), out); err != nil {
		return nil, err
	}
	return out, nil
}

// As returns a function that sets the defaults of objects of the older version. fill sets the
// defaults of objects of the stored version; the function converts an object, calls fill, and
// converts it back.
func (v *Version) As(fill func(resource.Object)) func(resource.Object) {
	return func(o resource.Object) {
		stored, err := v.convert(o, v.Stored)
		if err != nil {
			return // the conversion to the stored version reports the error later
		}
		fill(stored)
		kind := o.GetObjectKind().GroupVersionKind()
		if v.Convert(stored, o) == nil {
			o.GetObjectKind().SetGroupVersionKind(kind)
		}
	}
}

// StoredAs makes a row store objects in an older version and read them in this version and v1. The
// older version must have the fields of v1. Kubernetes also stores the older version until its
// previous release can read v1.
func StoredAs(version string, row *resource.Row) *resource.Row {
	stored := *row
	stored.Version = version
	stored.Versions = []resource.Version{{Name: version}, {Name: "v1", New: row.New}}
	row.Codec, row.StoredAs = registry.Codec(&stored), stored.GroupVersionKind()
	return row
}
