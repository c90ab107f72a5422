// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"reflect"

	"keelson.dev/apiserver/store"
)

// hollows is where a type has lists and maps: protobuf does not tell an empty one
// from none, so that what is at hand must not either.
type hollows struct {
	fields []hollowField
	done   bool // false while the plan of a type that contains itself is made
}

// hollowField is a field that is a list or a map, or has some below it.
type hollowField struct {
	index int
	below *hollows // of the struct, or of the elements; nil: nothing
}

// newHollows returns what makes empty lists and maps of objects like sample none.
func newHollows(sample any) func(store.Object) {
	t := reflect.TypeOf(sample)
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return func(store.Object) {}
	}
	plan := hollowsOf(t.Elem(), map[reflect.Type]*hollows{})
	return func(obj store.Object) { plan.clear(reflect.ValueOf(obj).Elem()) }
}

// hollowsOf plans a struct type. Types may contain themselves.
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

func (h *hollows) clear(v reflect.Value) {
	for _, f := range h.fields {
		clearField(v.Field(f.index), f.below)
	}
}

func clearField(v reflect.Value, below *hollows) {
	switch v.Kind() {
	case reflect.Map:
		if !v.IsNil() && v.Len() == 0 {
			v.SetZero()
		}
	case reflect.Slice:
		if !v.IsNil() && v.Len() == 0 {
			v.SetZero()
		}
		if below == nil {
			return
		}
		for i := range v.Len() {
			clearField(v.Index(i), below)
		}
	case reflect.Pointer:
		if !v.IsNil() && below != nil {
			clearField(v.Elem(), below)
		}
	case reflect.Struct:
		if below != nil {
			below.clear(v)
		}
	default:
	}
}
