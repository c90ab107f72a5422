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

// Objects may contain values without a type (runtime.RawExtension), which are stored as the client
// wrote them. A difference in spelling counts as a change of the spec. Kubernetes encodes an object
// before it patches it, which changes the spelling of these values. A patch here therefore changes
// their spelling in the same way.

// spelling changes the spelling of a JSON value: white space, or the order of members.
type spelling func(raw []byte) ([]byte, error)

// compacted removes white space between tokens.
func compacted(raw []byte) ([]byte, error) { return json.Marshal(json.RawMessage(raw)) }

// sorted decodes and encodes the value, which sorts the members of its objects.
func sorted(raw []byte) ([]byte, error) {
	var v any
	if err := kjson.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

var rawValue = reflect.TypeFor[runtime.RawExtension]()

// holdsRaw reports whether an object of type t may contain a value without a type. The argument
// seen has the types that were visited.
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

// respell writes every RawExtension in an object with the white space and the order of members of
// the given spelling.
func (r *Registry) respell(obj resource.Object, as spelling) {
	if r.raw {
		rewrite(reflect.ValueOf(obj), as)
	}
}

// rewrite does the work of respell for v. Values that are not JSON stay as they are. Maps are not
// searched, because no kind has a RawExtension in a map.
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
