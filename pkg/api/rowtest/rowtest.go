// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rowtest is what the tests of the kinds' rules have in common: objects
// as they arrive, after their defaults, and what is said of them.
package rowtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
)

// Row finds the row of a resource.
func Row(tb testing.TB, rows []*resource.Row, name string) *resource.Row {
	tb.Helper()
	i := slices.IndexFunc(rows, func(row *resource.Row) bool { return row.Resource == name })
	if i < 0 {
		tb.Fatalf("no row %s", name)
	}
	return rows[i]
}

// Decode makes an object of JSON, with its defaults. An empty name leaves it
// the one it has.
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

// Check compares what is said of an object with what is to be said, in order.
func Check(tb testing.TB, errs field.ErrorList, want []string) {
	tb.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		tb.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
