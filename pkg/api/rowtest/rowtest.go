// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rowtest has helpers for tests of the rules of kinds. It finds rows of the kind table,
// decodes objects and sets their defaults, and compares the errors of validation.
package rowtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"keelson.dev/apiserver/resource"
)

// Row returns the row of the kind table for the resource with the given plural name. The row drops all gated
// fields.
func Row(tb testing.TB, rows []*resource.Row, name string) *resource.Row {
	tb.Helper()
	i := slices.IndexFunc(rows, func(row *resource.Row) bool { return row.Resource == name })
	if i < 0 {
		tb.Fatalf("no row %s", name)
	}
	resource.DropGated(rows[i], func(string) bool { return false })
	return rows[i]
}

// Decode decodes an object from JSON and sets its defaults. If name is not empty, it becomes the
// object's name.
func Decode(tb testing.TB, row *resource.Row, name, object string) resource.Object {
	tb.Helper()
	obj := row.New()
	if err := json.Unmarshal([]byte(object), obj); err != nil {
		tb.Fatal(err)
	}
	if name != "" {
		obj.SetName(name)
	}
	if row.Default != nil {
		row.Default(obj)
	}
	return obj
}

// Check compares the texts of errors with the expected texts. Their order and repetitions do not
// count.
func Check(tb testing.TB, errs field.ErrorList, want []string) {
	tb.Helper()
	got, wanted := sets.New[string](), sets.New(want...)
	for _, err := range errs {
		got.Insert(err.Error())
	}
	if !got.Equal(wanted) {
		tb.Errorf("got\n  %s\nwant\n  %s", strings.Join(sets.List(got), "\n  "), strings.Join(sets.List(wanted), "\n  "))
	}
}

// Case is a test case of a create or update: its name, a JSON merge patch in YAML, and the expected
// errors. The patch is applied to an object that all cases of a test share. The expected errors are
// written as "field: reason" and separated by a comma and a space.
type Case [3]string

// Creates applies the patch of each case to valid, which is an object in YAML, validates the result
// as a new object, and compares the errors.
func Creates(t *testing.T, row *resource.Row, valid string, cases []Case) {
	t.Helper()
	for _, tc := range cases {
		t.Run("create/"+tc[0], func(t *testing.T) {
			obj := patched(t, row, []byte(valid), tc[1])
			if row.PrepareCreate != nil {
				row.PrepareCreate(t.Context(), obj)
			}
			var errs field.ErrorList
			if row.Validate != nil {
				errs = row.Validate(t.Context(), obj)
			}
			compare(t, errs, tc[2])
		})
	}
}

// Updates applies the patch of each case to stored, which is an object in YAML, validates the
// result as an update of the stored object, and compares the errors. If subresource is not empty,
// it is an update of this subresource.
func Updates(t *testing.T, row *resource.Row, subresource, stored string, cases []Case) {
	t.Helper()
	prepare, validate := row.PrepareUpdate, row.ValidateUpdate
	if subresource != "" {
		sub := row.Subresource(subresource)
		prepare, validate = sub.PrepareUpdate, sub.ValidateUpdate
	}
	for _, tc := range cases {
		t.Run("update "+subresource+"/"+tc[0], func(t *testing.T) {
			old := patched(t, row, []byte(stored), "")
			text, err := json.Marshal(old)
			if err != nil {
				t.Fatal(err)
			}
			obj := patched(t, row, text, tc[1])
			if prepare != nil {
				prepare(t.Context(), obj, old)
			}
			var errs field.ErrorList
			if validate != nil {
				errs = validate(t.Context(), obj, old)
			}
			compare(t, errs, tc[2])
		})
	}
}

// patched applies a JSON merge patch in YAML to an object in YAML, decodes the result and sets its
// defaults.
func patched(tb testing.TB, row *resource.Row, object []byte, patch string) resource.Object {
	tb.Helper()
	var fields, changes map[string]any
	if err := yaml.Unmarshal(object, &fields); err != nil {
		tb.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(patch), &changes); err != nil {
		tb.Fatal(err)
	}
	merge(fields, changes)
	text, err := json.Marshal(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return Decode(tb, row, "", string(text))
}

// merge applies a JSON merge patch (RFC 7386) to fields.
func merge(fields, patch map[string]any) {
	for name, value := range patch {
		changes, isObject := value.(map[string]any)
		old, wasObject := fields[name].(map[string]any)
		switch {
		case value == nil:
			delete(fields, name)
		case isObject && wasObject:
			merge(old, changes)
		default:
			fields[name] = value
		}
	}
}

// compare compares the fields and reasons of errors with those in want. Their order and repetitions
// do not count.
func compare(tb testing.TB, errs field.ErrorList, want string) {
	tb.Helper()
	got, wanted := sets.New[string](), sets.New[string]()
	for _, err := range errs {
		got.Insert(err.Field + ": " + err.Type.String())
	}
	if want != "" {
		wanted.Insert(strings.Split(want, ", ")...)
	}
	if !got.Equal(wanted) {
		tb.Errorf("got\n  %s\nwant\n  %s\nall findings: %v", strings.Join(sets.List(got), "\n  "),
			strings.Join(sets.List(wanted), "\n  "), errs)
	}
}
