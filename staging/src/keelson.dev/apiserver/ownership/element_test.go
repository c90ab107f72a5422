// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestCompareElements checks that compareElements and compareParsed have the same order as
// structured-merge-diff.
func TestCompareElements(t *testing.T) {
	text := rapid.SampledFrom([]string{`""`, `"a"`, `"a-b"`, `"a,b"`, `"a:b"`, `"a}"`, `"b"`, `"10"`})
	number := rapid.Map(rapid.SampledFrom([]int64{0, 1, -1, 2, 9, 10, 80, 8080, -999_999_999_999_999,
		999_999_999_999_999}), func(i int64) string { return fmt.Sprint(i) })
	scalar := rapid.OneOf(text, number, rapid.SampledFrom([]string{"true", "false"}))
	keys := rapid.Custom(func(t *rapid.T) string {
		names := slices.Sorted(
			slices.Values(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"ip", "name", "port", "protocol"}),
				1, 3, rapid.ID).Draw(t, "names")))
		for i, name := range names {
			names[i] = fmt.Sprintf("%q:%s", name, scalar.Draw(t, "value"))
		}
		return "k:{" + strings.Join(names, ",") + "}"
	})
	value := rapid.Map(scalar, func(s string) string { return "v:" + s })
	field := rapid.SampledFrom([]string{"f:a", "f:a-b", "f:a.b", "f:b", "f:"})
	element := rapid.OneOf(keys, keys, value, field)
	rapid.Check(t, func(t *rapid.T) {
		a, b := element.Draw(t, "a"), element.Draw(t, "b")
		for _, e := range []string{a, b} {
			if !simpleElement(e) {
				t.Fatalf("%s is not spelt so", e)
			}
		}
		if got, want := cmp.Compare(compareElements(a, b), 0), cmp.Compare(compareParsed(a, b), 0); got != want {
			t.Fatalf("%s, %s: %d, want %d", a, b, got, want)
		}
	})
}
