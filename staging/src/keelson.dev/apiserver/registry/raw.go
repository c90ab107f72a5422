// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"keelson.dev/apiserver/resource"
)

// An object may hold values of no type, which stay as they were written (runtime.RawExtension):
// their spelling counts where a change of the spec is looked for. Kubernetes writes an
// object anew before it patches it, and thereby what it holds.

// spelling writes such a value anew.
type spelling func(raw []byte) ([]byte, error)

// compacted is how a value is written in JSON: without space.
func compacted(raw []byte) ([]byte, error) { return json.Marshal(json.RawMessage(raw)) }

// sorted is how a value is written that has been taken apart: with its members in order.
func sorted(raw []byte) ([]byte, error) {
	var v any
	if err := kjson.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

var rawValue = reflect.TypeFor[runtime.RawExtension]()

// holdsRaw tells whether there can be such a value in one of type t. seen are the types on
// the way to it.
func holdsRaw(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == rawValue {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsRaw(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsRaw(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// respell writes all such values of an object anew.
func (r *Registry) respell(obj resource.Object, as spelling) {
	if r.raw {
		rewrite(reflect.ValueOf(obj), as)
	}
}

// rewrite writes all such values in v anew. What is no JSON stays. There are none in
// the maps of the API.
func rewrite(v reflect.Value, as spelling) {
	switch {
	case v.Type() == rawValue:
		raw := v.Addr().Interface().(*runtime.RawExtension)
		if len(raw.Raw) == 0 {
			return
		}
		if data, err := as(raw.Raw); err == nil {
			raw.Raw = data
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		rewrite(v.Elem(), as)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			rewrite(v.Index(i), as)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				rewrite(v.Field(i), as)
			}
		}
	}
}
