// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package equal compares API objects and parts of them. Values returns the same as apimachinery's
// equality.Semantic.DeepEqual, but is several times as fast. Speed matters because an update
// compares a spec with its predecessor more than once.
//
// The package has no state. Values must be trees, as API objects are.
package equal

import (
	"bytes"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values reports whether a and b are equal. Empty lists and maps equal nil. Quantities are compared
// by value, and times by the instant that they denote.
func Values(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if !x.IsValid() || !y.IsValid() {
		return x.IsValid() == y.IsValid()
	}
	return x.Type() == y.Type() && same(x, y)
}

// same compares two values of one type.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return a.UnsafePointer() == b.UnsafePointer() || same(a.Elem(), b.Elem())
	case reflect.Struct:
		return structs(a, b)
	case reflect.Slice:
		return slices(a, b)
	case reflect.Map:
		return dictionaries(a, b)
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		a, b = a.Elem(), b.Elem()
		return a.Type() == b.Type() && same(a, b)
	}
	return equality.Semantic.DeepEqual(a.Interface(), b.Interface())
}

func structs(a, b reflect.Value) bool {
	switch t := a.Type(); t {
	case reflect.TypeFor[resource.Quantity]():
		x, y := a.Interface().(resource.Quantity), b.Interface().(resource.Quantity)
		return x.Cmp(y) == 0
	case reflect.TypeFor[metav1.Time]():
		x, y := a.Interface().(metav1.Time), b.Interface().(metav1.Time)
		return x.UTC() == y.UTC() // apimachinery does the same
	case reflect.TypeFor[metav1.MicroTime]():
		x, y := a.Interface().(metav1.MicroTime), b.Interface().(metav1.MicroTime)
		return x.UTC() == y.UTC() // apimachinery does the same
	case reflect.TypeFor[metav1.FieldsV1]():
		x, y := a.Interface().(metav1.FieldsV1), b.Interface().(metav1.FieldsV1)
		return x.Equal(y)
	}
	for i := range a.NumField() {
		if !same(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

func slices(a, b reflect.Value) bool {
	switch n := a.Len(); {
	case n != b.Len():
		return false
	case n == 0, a.UnsafePointer() == b.UnsafePointer():
		return true
	case a.Type().Elem().Kind() == reflect.Uint8:
		return bytes.Equal(a.Bytes(), b.Bytes())
	}
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func dictionaries(a, b reflect.Value) bool {
	switch n := a.Len(); {
	case n != b.Len():
		return false
	case n == 0, a.UnsafePointer() == b.UnsafePointer():
		return true
	case a.Type() == reflect.TypeFor[map[string]string]() && a.CanInterface():
		return maps.Equal(a.Interface().(map[string]string), b.Interface().(map[string]string))
	}
	for it := a.MapRange(); it.Next(); {
		other := b.MapIndex(it.Key())
		if !other.IsValid() || !same(it.Value(), other) {
			return false
		}
	}
	return true
}
