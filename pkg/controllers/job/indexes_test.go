// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIndexes checks the methods of indexes against the same operations on lists of numbers.
func TestIndexes(t *testing.T) {
	const limit = 30
	set := func(t *rapid.T, name string) (indexes, map[int]bool) {
		list := rapid.SliceOfN(rapid.IntRange(0, limit-1), 0, 20).Draw(t, name)
		model := map[int]bool{}
		for _, i := range list {
			model[i] = true
		}
		return indexSet(list), model
	}
	check := func(t *rapid.T, what string, x indexes, model func(i int) bool) {
		for i := range limit {
			if x.has(i) != model(i) {
				t.Fatalf("%s: %v has %d: %v", what, x, i, x.has(i))
			}
		}
		for i := 1; i < len(x); i++ {
			if x[i].first <= x[i-1].last+1 || x[i].last < x[i].first {
				t.Fatalf("%s: intervals %v touch or are out of order", what, x)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, inA := set(t, "a")
		b, inB := set(t, "b")
		check(t, "set", a, func(i int) bool { return inA[i] })
		check(t, "union", a.union(b), func(i int) bool { return inA[i] || inB[i] })
		both := 0
		for i := range inA {
			if inB[i] {
				both++
			}
		}
		if got := a.common(b); got != both {
			t.Fatalf("common: %d, want %d", got, both)
		}
		if a.count() != len(inA) {
			t.Fatalf("count: %d, want %d", a.count(), len(inA))
		}
		cut := rapid.IntRange(0, limit).Draw(t, "cut")
		check(t, "parsed", parseIndexes(a.String(), cut), func(i int) bool { return inA[i] && i < cut })
		n := rapid.IntRange(0, limit).Draw(t, "n")
		var want []int
		for i := range cut {
			if !inA[i] && len(want) < n {
				want = append(want, i)
			}
		}
		if got := a.missing(n, cut); !slices.Equal(got, want) {
			t.Fatalf("missing: %v, want %v", got, want)
		}
	})
}

func TestIndexesText(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		limit int
		want  string
	}{
		"none":           {"", 5, ""},
		"one":            {"3", 5, "3"},
		"two are listed": {"1-2", 5, "1,2"},
		"joined":         {"0,1,2,4", 5, "0-2,4"},
		"cut":            {"0,2-9", 5, "0,2-4"},
		"beyond":         {"7,9", 5, ""},
		"damaged":        {"0,x,3-y,4", 5, "0,4"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseIndexes(tc.text, tc.limit).String(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
