// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Untagged is value as Kubernetes shows it in a message. Kubernetes judges types
// of its own, which have no names but those in Go and are here and there shaped
// otherwise than what is on the wire: what it shows is JSON of those.
func Untagged(value any) any {
	var out bytes.Buffer
	if err := writeUntagged(&out, reflect.ValueOf(value)); err != nil {
		return value
	}
	return json.RawMessage(out.Bytes())
}

// shown is Untagged for what is, or is made of, structs of an API group.
func shown(value any) any {
	if value == nil {
		return nil
	}
	t := reflect.TypeOf(value)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && ofGroup(t) {
		return Untagged(value)
	}
	return value
}

// ofGroup tells whether a type belongs to an API group of Kubernetes. Those of
// apimachinery look the same everywhere.
func ofGroup(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), "k8s.io/api/") }

func writeUntagged(out *bytes.Buffer, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return writeUntagged(out, v.Elem())
		}
	case reflect.Struct:
		if !ofGroup(v.Type()) && strings.HasPrefix(v.Type().PkgPath(), "k8s.io/") {
			break
		}
		return writeStruct(out, v)
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		return writeList(out, v)
	case reflect.Map:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Struct || v.Type().Key().Kind() != reflect.String {
			break
		}
		return writeMap(out, v)
	}
	return writeJSON(out, v)
}

func writeJSON(out *bytes.Buffer, v reflect.Value) error {
	data, err := json.Marshal(v.Interface())
	out.Write(data)
	return err
}

func writeList(out *bytes.Buffer, v reflect.Value) error {
	out.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeUntagged(out, v.Index(i)); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func writeMap(out *bytes.Buffer, v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	out.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeJSON(out, key); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := writeUntagged(out, v.MapIndex(key)); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func writeStruct(out *bytes.Buffer, v reflect.Value) error {
	out.WriteByte('{')
	w := fieldWriter{out: out, first: true}
	if err := w.fields(v); err != nil {
		return err
	}
	out.WriteByte('}')
	return nil
}

// fieldWriter writes the fields of one JSON object.
type fieldWriter struct {
	out   *bytes.Buffer
	first bool
}

// fields writes the fields of a struct and of those it embeds.
func (w *fieldWriter) fields(v reflect.Value) error {
	for _, name := range shapeOf(v.Type()) {
		f, _ := v.Type().FieldByName(name)
		value := v.FieldByName(name)
		if f.Anonymous && value.Kind() == reflect.Struct {
			if err := w.embedded(value); err != nil {
				return err
			}
			continue
		}
		if err := w.field(name, value, v); err != nil {
			return err
		}
	}
	return nil
}

func (w *fieldWriter) field(name string, value, of reflect.Value) error {
	w.name(name)
	if !value.IsValid() { // a field that is not on the wire
		return w.unwired(of)
	}
	if value.Kind() == reflect.Pointer && value.IsNil() && alwaysSet(of.Type(), name) {
		value = reflect.Zero(value.Type().Elem())
	}
	if name == "SecurityContext" && of.Type().Name() == "PodSpec" && !value.IsNil() {
		return writePodSecurity(w.out, value.Elem(), of)
	}
	return writeUntagged(w.out, value)
}

func (w *fieldWriter) name(name string) {
	if !w.first {
		w.out.WriteByte(',')
	}
	w.first = false
	fmt.Fprintf(w.out, "%q:", name)
}

// embedded writes the fields of an embedded struct. Those of apimachinery
// (ObjectMeta) keep their names.
func (w *fieldWriter) embedded(v reflect.Value) error {
	if ofGroup(v.Type()) || !strings.HasPrefix(v.Type().PkgPath(), "k8s.io/") {
		return w.fields(v)
	}
	data, err := json.Marshal(v.Interface())
	if inner := bytes.Trim(data, "{}"); err == nil && len(inner) > 0 {
		if !w.first {
			w.out.WriteByte(',')
		}
		w.first = false
		w.out.Write(data[1 : len(data)-1])
	}
	return err
}
