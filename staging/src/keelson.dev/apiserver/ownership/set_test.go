// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestBuilder builds sets repeatedly with one builder, and compares them with sets in separate
// slices.
func TestBuilder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b builder
		var build func(depth int) set
		build = func(depth int) (want set) {
			for i := range rapid.IntRange(0, 6).Draw(t, "elements") {
				element, member := fmt.Sprintf("f:%d", i), rapid.Bool().Draw(t, "member")
				start := b.begin()
				var below set
				if depth > 0 {
					below = build(depth - 1)
				}
				b.close(element, start, member)
				if member || len(below) > 0 {
					want = append(want, entry{element, member, below})
				}
			}
			return want
		}
		for range rapid.IntRange(1, 8).Draw(t, "sets") {
			want := build(rapid.IntRange(0, 4).Draw(t, "depth"))
			if got := b.end(0); !equal(got, want) {
				t.Fatalf("built %v, want %v", got, want)
			}
			b.reset()
			if cap(b.block) > keptBlock || len(b.block)+len(b.open)+b.used != 0 {
				t.Fatalf("%d entries are left, and room for %d", len(b.block)+len(b.open), cap(b.block))
			}
		}
	})
}

// TestBuilderKeepsRoom checks that building a second set of the same size after reset needs no
// allocation.
func TestBuilderKeepsRoom(t *testing.T) {
	var b builder
	build := func() {
		for range 3 * mostBlock {
			b.close("f:x", b.begin(), true)
		}
		b.end(0)
		b.reset()
	}
	build()
	if allocs := testing.AllocsPerRun(10, build); allocs != 0 {
		t.Errorf("%v allocations for a set of the same size", allocs)
	}
	for range 2 * keptBlock {
		b.close("f:x", b.begin(), true)
	}
	b.end(0)
	b.reset()
	if cap(b.block) > keptBlock {
		t.Errorf("room for %d entries is kept", cap(b.block))
	}
}
