// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// glance returns a record's object to look at: its kind and the fields of its
// metadata may be set, what they lead to is shared and stays as it is.
func (r *Registry) glance(rec *store.Record) (resource.Object, error) {
	if r.dynamic {
		return rec.Object()
	}
	obj, err := rec.Read()
	if err != nil {
		return nil, err
	}
	return r.shallow(rec, obj)
}

// shallow returns what glance does of a record that was read as obj, of a Go type.
func (r *Registry) shallow(rec *store.Record, obj store.Object) (resource.Object, error) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return rec.Object()
	}
	shallow := reflect.New(v.Type().Elem())
	shallow.Elem().Set(v.Elem())
	return shallow.Interface().(resource.Object), nil
}
