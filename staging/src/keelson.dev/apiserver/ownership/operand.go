// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// operand is a value in one of the two objects that are compared. It may be absent or null.
type operand struct {
	v     reflect.Value
	state state
}

type state uint8

const (
	absent state = iota
	null
	present
)

// of returns the field of a struct as it would be in JSON: absent if encoding omits it, null if it
// is nil.
func (f *field) of(s reflect.Value) operand {
	var v reflect.Value
	if len(f.index) == 1 {
		v = s.Field(f.index[0])
	} else {
		v = s.FieldByIndex(f.index)
	}
	if f.omitEmpty && empty(v) || f.omitZero != nil && f.omitZero(v) {
		return operand{}
	}
	if f.node.opaque {
		return operand{v, present}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return operand{v, null}
		}
		v = v.Elem()
		if k := v.Kind(); (k == reflect.Map || k == reflect.Slice) && v.IsNil() {
			return operand{v, null}
		}
	case reflect.Map, reflect.Slice:
		if v.IsNil() {
			return operand{v, null}
		}
	}
	return operand{v, present}
}

// empty reports whether encoding/json omits v from a field with omitempty.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil()
	case reflect.Map, reflect.Slice, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Bool:
		return !v.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int() == 0
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return v.Uint() == 0
	case reflect.Float32, reflect.Float64:
		return v.Float() == 0
	}
	return false
}

// equality returns a function that compares two present values of a leaf.
func equality(t reflect.Type, opaque bool) func(a, b reflect.Value) bool {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return func(a, b reflect.Value) bool {
			x, y := a.Interface().(metav1.Time), b.Interface().(metav1.Time)
			return x.IsZero() == y.IsZero() && x.Unix() == y.Unix()
		}
	case t == reflect.TypeFor[metav1.MicroTime]():
		return func(a, b reflect.Value) bool {
			x, y := a.Interface().(metav1.MicroTime), b.Interface().(metav1.MicroTime)
			return x.IsZero() == y.IsZero() && x.UnixMicro() == y.UnixMicro()
		}
	case opaque:
		return sameValue
	}
	switch t.Kind() {
	case reflect.String:
		return func(a, b reflect.Value) bool { return a.String() == b.String() }
	case reflect.Bool:
		return func(a, b reflect.Value) bool { return a.Bool() == b.Bool() }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(a, b reflect.Value) bool { return a.Int() == b.Int() }
	}
	return sameValue
}

// sameValue reports whether two values have the same JSON, as structured-merge-diff compares them.
// They may differ in Go.
func sameValue(a, b reflect.Value) bool {
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return true
	}
	if x, ok := a.Interface().(resource.Quantity); ok {
		y := b.Interface().(resource.Quantity)
		return x.String() == y.String()
	}
	x, err := value.NewValueReflect(pointer(a))
	if err != nil {
		return false
	}
	y, err := value.NewValueReflect(pointer(b))
	return err == nil && value.Equals(x, y)
}

// pointer returns a pointer to the value of v, or nil if v is a nil pointer.
func pointer(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		return v.Interface()
	}
	if v.CanAddr() {
		return v.Addr().Interface()
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface()
}

// elementOf returns the path element for v, an element of the list n. It returns false if the
// package does not support such an element.
func (n *node) elementOf(v reflect.Value) (string, bool) {
	var room [96]byte
	if len(n.keys) == 0 {
		b, ok := appendScalar(append(room[:0], "v:"...), v)
		return string(b), ok
	}
	b := append(room[:0], "k:{"...)
	for i := range n.keys {
		k := &n.keys[i]
		start := len(b)
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, k.prefix...)
		o := k.field.of(v)
		switch {
		case o.state == present:
			var ok bool
			if b, ok = appendScalar(b, o.v); !ok {
				return "", false
			}
		case o.state == null:
			return "", false
		case k.fallback != "":
			b = append(b, k.fallback...)
		default:
			b = b[:start]
		}
	}
	if b[len(b)-1] == '{' {
		return "", false
	}
	return string(append(b, '}')), true
}

// appendScalar appends the JSON of a plain string, a boolean or an integer. It returns false if a
// string needs escapes or an integer has more than maxDigits digits.
func appendScalar(dst []byte, v reflect.Value) ([]byte, bool) {
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		if !plain(s) {
			return dst, false
		}
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"'), true
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool()), true
	}
	const most = 1_000_000_000_000_000 // the smallest number with more than maxDigits digits
	i := v.Int()
	return strconv.AppendInt(dst, i, 10), -most < i && i < most
}
