// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// readShallow returns a shallow copy of a record's object. The caller may set the kind and the
// fields of the metadata, but must not modify maps, slices or pointers in them.
func (r *Registry) readShallow(rec *store.Record) (resource.Object, error) {
	if r.dynamic {
		return rec.Object()
	}
	obj, err := rec.Read()
	if err != nil {
		return nil, err
	}
	return r.shallow(rec, obj)
}

// shallow is like readShallow, for a record that has already been decoded into obj, which has a Go
// type.
func (r *Registry) shallow(rec *store.Record, obj store.Object) (resource.Object, error) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return rec.Object()
	}
	shallow := reflect.New(v.Type().Elem())
	shallow.Elem().Set(v.Elem())
	return shallow.Interface().(resource.Object), nil
}
