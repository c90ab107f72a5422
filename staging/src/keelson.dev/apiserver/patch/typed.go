// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"keelson.dev/apiserver/typedjson"
)

// Merge applies a merge patch to obj, a pointer to an API struct, without encoding obj as JSON: it
// decodes only the fields in the patch. It returns false for a patch that only a merge of JSON
// documents handles exactly, such as one that is malformed, has unknown or repeated fields, or
// changes the kind. In that case, obj may have been changed in part.
func Merge(obj any, patch []byte) bool { return merger{}.all(obj, patch) }

// StrategicMerge is like Merge, for strategic merge patches. If a list has the patch strategy
// merge, it supports only the removal of strings, with which controllers remove finalizers.
func StrategicMerge(obj any, patch []byte) bool { return merger{strategic: true}.all(obj, patch) }

// merger merges patches. Its methods return false if the result would not be certain.
type merger struct{ strategic bool }

func (m merger) all(obj any, patch []byte) bool {
	var fields map[string]any
	if findings, err := kjson.UnmarshalStrict(patch, &fields); err != nil || len(findings) > 0 || fields == nil {
		return false
	}
	if _, kind := fields["kind"]; kind {
		return false
	}
	if _, version := fields["apiVersion"]; version {
		return false
	}
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct && m.structure(v.Elem(), patch)
}

var (
	jsonNull    = []byte("null")
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// value merges patch, which is valid JSON, into dst.
func (m merger) value(dst reflect.Value, patch json.RawMessage) bool {
	t := dst.Type()
	switch {
	case bytes.Equal(patch, jsonNull):
		dst.SetZero()
		return true
	case t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler):
		return patch[0] != '{' && decodeInto(dst, patch)
	case patch[0] != '{':
		return decodeInto(dst, patch)
	}
	switch t.Kind() {
	case reflect.Pointer:
		if dst.IsNil() {
			dst.Set(reflect.New(t.Elem()))
		}
		return m.value(dst.Elem(), patch)
	case reflect.Struct:
		return m.structure(dst, patch)
	case reflect.Map:
		return m.entries(dst, patch)
	}
	return false
}

// decodeInto replaces dst by the value in patch, which is not a JSON object.
func decodeInto(dst reflect.Value, patch json.RawMessage) bool {
	if bytes.Contains(patch, jsonNull) {
		var ok bool
		if patch, ok = withoutNulls(patch); !ok {
			return false
		}
	}
	dst.SetZero()
	return typedjson.Read(patch, dst.Addr().Interface())
}

// withoutNulls removes null members of objects in doc, at any depth, as a merge patch does in new
// values. doc is a new value or a list; lists are always replaced.
func withoutNulls(doc json.RawMessage) (json.RawMessage, bool) {
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return nil, false
	}
	dropNulls(v)
	out, err := json.Marshal(v)
	return out, err == nil
}

func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			if below == nil {
				delete(v, name)
			} else {
				dropNulls(below)
			}
		}
	case []any:
		for _, below := range v {
			dropNulls(below)
		}
	}
}

func (m merger) structure(dst reflect.Value, patch json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(patch, &members) != nil {
		return false
	}
	for name, member := range members {
		if list, ok := strings.CutPrefix(name, takeOut); ok && m.strategic {
			if _, both := members[list]; both || !without(dst, list, member) {
				return false
			}
			continue
		}
		f, tag := fieldNamed(dst, name)
		if !f.IsValid() || m.strategic && !whole(tag, member) || !m.value(f, member) {
			return false
		}
	}
	return true
}

// takeOut is the prefix of the directive that removes items from a list, as Kubernetes defines it.
const takeOut = "$deleteFromPrimitiveList/"

// without removes strings from the list field called name of a struct. It returns false if the
// field is not a list of strings that strategic merge patches merge.
func without(dst reflect.Value, name string, texts json.RawMessage) bool {
	list, tag := fieldNamed(dst, name)
	var gone []string
	if !list.IsValid() || list.Type() != reflect.TypeFor[[]string]() || tag.Get(strategy) != "merge" ||
		bytes.Contains(texts, jsonNull) || json.Unmarshal(texts, &gone) != nil {
		return false
	}
	left := slices.DeleteFunc(slices.Clone(list.Interface().([]string)),
		func(s string) bool { return slices.Contains(gone, s) })
	if len(left) == 0 {
		left = nil
	}
	list.Set(reflect.ValueOf(left))
	return true
}

// strategy is the struct tag with the merge strategy of a field.
const strategy = "patchStrategy"

// whole reports whether a strategic merge patch replaces the field by patch. Otherwise it merges
// the members of the object patch into the field.
func whole(tag reflect.StructTag, patch json.RawMessage) bool {
	switch {
	case bytes.Equal(patch, jsonNull):
		return true
	case tag.Get(strategy) != "":
		return false
	case patch[0] == '[':
		return !bytes.Contains(patch, []byte(`"$`)) && !bytes.Contains(patch, jsonNull)
	}
	return true
}

// fieldNamed returns the field of a struct, or of an inlined struct, with the given JSON name, and
// its tag.
func fieldNamed(v reflect.Value, name string) (reflect.Value, reflect.StructTag) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name:
			return v.Field(i), f.Tag
		case f.Anonymous && f.Type.Kind() == reflect.Struct && tag == "":
			if found, tag := fieldNamed(v.Field(i), name); found.IsValid() {
				return found, tag
			}
		}
	}
	return reflect.Value{}, ""
}

// entries merges patch into a map. It supports only values that are not objects.
func (m merger) entries(dst reflect.Value, patch json.RawMessage) bool {
	var entries map[string]json.RawMessage
	t := dst.Type()
	if t.Key().Kind() != reflect.String || t.Elem().Kind() == reflect.Interface || json.Unmarshal(patch, &entries) != nil {
		return false
	}
	if dst.IsNil() {
		dst.Set(reflect.MakeMapWithSize(t, len(entries)))
	}
	for name, entry := range entries {
		if m.strategic && strings.HasPrefix(name, "$") {
			return false
		}
		key := reflect.ValueOf(name).Convert(t.Key())
		if bytes.Equal(entry, jsonNull) {
			dst.SetMapIndex(key, reflect.Value{})
			continue
		}
		val := reflect.New(t.Elem()).Elem()
		// The library cannot merge a list in a map, and returns an error if the map already has
		// one.
		if entry[0] == '{' || m.strategic && entry[0] == '[' || !decodeInto(val, entry) {
			return false
		}
		dst.SetMapIndex(key, val)
	}
	return true
}
