// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"

	"keelson.dev/apiserver/store"
)

// hollows lists the slices and maps in a struct type that must be nil if they are empty. Protobuf
// does not distinguish an empty list or map from nil: decoding returns nil. An object that is kept in
// memory must be equal to the one that is decoded from the store later.
//
// A []byte that is a value in a map is the opposite case: decoding returns an empty slice for it,
// so nil must become an empty slice.
type hollows struct {
	fields []hollowField
	done   bool // false while the fields of a recursive type are being collected
}

// hollowField is a field that is a slice or map, or that contains slices or maps.
type hollowField struct {
	index int
	below *hollows // fields of the struct or of the elements; nil if they contain no slices or maps
}

// newHollows returns a function that sets empty lists and maps in an object to nil, and reports
// whether it found any. The object must be of sample's type.
func newHollows(sample any) func(store.Object) bool {
	t := reflect.TypeOf(sample)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return func(store.Object) bool { return false }
	}
	plan := hollowsOf(t.Elem(), map[reflect.Type]*hollows{})
	return func(obj store.Object) bool { return plan.clear(reflect.ValueOf(obj).Elem()) }
}

// hollowsOf collects the slice and map fields of a struct type, which may be recursive. The
// argument known has the types that were visited.
func hollowsOf(t reflect.Type, known map[reflect.Type]*hollows) *hollows {
	if plan, ok := known[t]; ok {
		return plan
	}
	plan := &hollows{}
	known[t] = plan
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		below := f.Type
		list := below.Kind() == reflect.Map || below.Kind() == reflect.Slice && below.Elem().Kind() != reflect.Uint8
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		field := hollowField{index: i}
		if below.Kind() == reflect.Struct {
			field.below = hollowsOf(below, known)
			if field.below.done && len(field.below.fields) == 0 {
				field.below = nil
			}
		}
		if list || field.below != nil {
			plan.fields = append(plan.fields, field)
		}
	}
	plan.done = true
	return plan
}

func (h *hollows) clear(v reflect.Value) bool {
	found := false
	for _, f := range h.fields {
		found = clearField(v.Field(f.index), f.below) || found
	}
	return found
}

func clearField(v reflect.Value, below *hollows) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		if v.IsNil() {
			return false
		}
		if v.Len() == 0 {
			v.SetZero()
			return true
		}
		if v.Kind() == reflect.Map {
			return fillBytes(v)
		}
		if below == nil {
			return false
		}
		found := false
		for i := range v.Len() {
			found = clearField(v.Index(i), below) || found
		}
		return found
	case reflect.Pointer:
		return !v.IsNil() && below != nil && clearField(v.Elem(), below)
	case reflect.Struct:
		return below != nil && below.clear(v)
	default:
		return false
	}
}

// fillBytes replaces nil by an empty slice for the values of a map of []byte.
func fillBytes(m reflect.Value) bool {
	values, ok := m.Interface().(map[string][]byte)
	found := false
	for k, v := range values {
		if ok && v == nil {
			values[k], found = []byte{}, true
		}
	}
	return found
}
