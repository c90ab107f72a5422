// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestDisjoint(t *testing.T) {
	in := prefixes("10.0.1.0/24", "10.0.0.0/16", "192.0.2.7/32", "192.0.2.7/32", "10.1.0.5/16")
	want := prefixes("10.0.0.0/16", "10.1.0.0/16", "192.0.2.7/32")
	if got := Disjoint(in); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestWithout compares the ranges with a check of every address of a small network.
func TestWithout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
			b := [4]byte{255, 255, 255, rapid.Byte().Draw(t, "last")}
			return netip.PrefixFrom(netip.AddrFrom4(b), rapid.IntRange(24, 32).Draw(t, "bits"))
		})
		p, others := prefix.Draw(t, "prefix"), rapid.SliceOfN(prefix, 0, 5).Draw(t, "others")
		got := Without(p, others)
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{255, 255, 255, byte(i)})
			holds := func(q netip.Prefix) bool { return q.Contains(a) }
			want := p.Contains(a) && !slices.ContainsFunc(others, holds)
			n := 0
			for _, r := range got {
				if !a.Less(r.First) && !r.Last.Less(a) {
					n++
				}
			}
			if n > 1 || (n == 1) != want {
				t.Fatalf("%v is in %d of %v, want %v", a, n, got, want)
			}
		}
	})
}

// TestElements checks that an address is in the intervals exactly if it is in one of the prefixes.
func TestElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []netip.Prefix
		for range rapid.IntRange(0, 6).Draw(t, "count") {
			a := netip.AddrFrom4([4]byte{255, 255, 255, byte(rapid.IntRange(0, 255).Draw(t, "address"))})
			p, _ := a.Prefix(rapid.IntRange(26, 32).Draw(t, "bits"))
			list = append(list, p)
		}
		es := Elements(Ranges(list), false)
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{255, 255, 255, byte(i)})
			in := false
			for _, e := range es {
				key, _ := netip.AddrFromSlice(e.Key)
				if key.Compare(a) <= 0 {
					in = !e.IntervalEnd
				}
			}
			if want := slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) }); in != want {
				t.Fatalf("%v in %v: %v, want %v", a, list, in, want)
			}
		}
		for i := 1; i < len(es); i++ {
			if slices.Compare(es[i-1].Key, es[i].Key) >= 0 {
				t.Fatalf("keys out of order: %v", es)
			}
		}
	})
}
