// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rowtest helps to test the rules of kinds: it finds rows, decodes objects with their
// defaults, and compares the findings of validation.
package rowtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
)

// Row returns the row of the resource with the given plural name.
func Row(tb testing.TB, rows []*resource.Row, name string) *resource.Row {
	tb.Helper()
	i := slices.IndexFunc(rows, func(row *resource.Row) bool { return row.Resource == name })
	if i < 0 {
		tb.Fatalf("no row %s", name)
	}
	return rows[i]
}

// Decode decodes an object from JSON and sets its defaults. It replaces the object's name unless name is
// empty.
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

// Check compares the findings about an object with those wanted, as sets.
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
