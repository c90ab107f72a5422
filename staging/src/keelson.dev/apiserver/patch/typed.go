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
// decodes only the fields in the patch. It reports false for a patch that only a merge of JSON
// documents handles exactly, such as one that is malformed, has unknown or repeated fields, or
// changes the kind. In that case, obj may have been changed in part.
func Merge(obj any, patch []byte) bool { return merger{}.all(obj, patch) }

// StrategicMerge is Merge for strategic merge patches. For lists that are merged it supports only
// the removal of strings, which controllers do with finalizers.
func StrategicMerge(obj any, patch []byte) bool { return merger{strategic: true}.all(obj, patch) }

// merger merges patches and gives up if a result is not certain.
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

// decodeInto replaces dst by a value that is not an object.
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

// withoutNulls removes null members at any depth: a merge patch has no nulls in new values, and
// lists are always new values.
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

// takeOut is the prefix of the directive that removes items from a list.
const takeOut = "$deleteFromPrimitiveList/"

// without removes strings from a list of a struct, if strategic patches merge the list.
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

// whole reports whether a strategic merge patch replaces the field, or merges it member by member
// like an object.
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

// fieldNamed returns the field of a struct, or of a struct inlined in it, whose JSON name is name,
// and its tag.
func fieldNamed(v reflect.Value, name string) (reflect.Value, reflect.StructTag) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name:
			return v.Field(i), f.Tag
		case f.Anonymous && f.Type.Kind() == reflect.Struct &&
			(tag == "" || slices.Contains(strings.Split(options, ","), "inline")):
			if found, tag := fieldNamed(v.Field(i), name); found.IsValid() {
				return found, tag
			}
		}
	}
	return reflect.Value{}, ""
}

// entries merges the values of a map that are not objects.
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
		// The library has no strategy for a list in a map and returns an error if there is one already.
		if entry[0] == '{' || m.strategic && entry[0] == '[' || !decodeInto(val, entry) {
			return false
		}
		dst.SetMapIndex(key, val)
	}
	return true
}
