// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestPlaceMeta(t *testing.T) {
	finding := func(name string) *field.Error { return field.Required(field.NewPath(name), "") }
	a, b, meta := finding("a"), finding("b"), finding("metadata")
	for name, tc := range map[string]struct{ found, meta, want field.ErrorList }{
		"no place":      {field.ErrorList{a, b}, field.ErrorList{meta}, field.ErrorList{meta, a, b}},
		"between":       {field.ErrorList{a, MetaHere(), b}, field.ErrorList{meta}, field.ErrorList{a, meta, b}},
		"nothing to do": {field.ErrorList{MetaHere()}, nil, field.ErrorList{}},
	} {
		if got := PlaceMeta(tc.found, tc.meta); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
