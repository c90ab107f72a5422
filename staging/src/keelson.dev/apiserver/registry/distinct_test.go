// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestDistinct checks that the function distinct keeps the first of several equal errors, and keeps
// errors that differ in type, value or message.
func TestDistinct(t *testing.T) {
	name := field.NewPath("metadata", "name")
	missing, bad, worse := field.Required(name, ""), field.Invalid(name, "A", "bad"), field.Invalid(name, "B", "bad")
	other := field.Invalid(name, "A", "worse")
	got := distinct(field.ErrorList{bad, missing, field.Invalid(name, "A", "bad"), worse, other, missing})
	if want := (field.ErrorList{bad, missing, worse,
		other}); got.ToAggregate().Error() != want.ToAggregate().Error() || len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
