// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeipam

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestRangesAgainstNaive checks that no range is assigned twice, that none overlaps with occupied
// addresses, and that all can be assigned.
func TestRangesAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := netip.MustParsePrefix(
			rapid.SampledFrom([]string{"10.244.0.0/16", "fd00:1::/48", "192.168.7.0/24"}).Draw(t, "whole"))
		mask := whole.Bits() + rapid.IntRange(0, 4).Draw(t, "bits")
		r, err := newRanges(whole, mask)
		if err != nil {
			t.Fatal(err)
		}
		held := map[netip.Prefix]bool{}
		var outside netip.Prefix
		if rapid.Bool().Draw(t, "services") {
			outside = netip.PrefixFrom(whole.Addr(), mask+1)
			r.occupy(outside, services)
		}
		for range 40 {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				for p := range held {
					r.release(p, "n")
					delete(held, p)
					break
				}
				continue
			}
			p, err := r.next("n")
			free := r.count - len(held)
			if outside.IsValid() {
				free--
			}
			if (err == nil) != (free > 0) {
				t.Fatalf("%d free, error %v", free, err)
			}
			if err != nil {
				continue
			}
			if held[p] || p.Bits() != mask || !whole.Overlaps(p) || outside.IsValid() && p.Overlaps(outside) {
				t.Fatalf("given %s; held %v, outside %v", p, held, outside)
			}
			held[p] = true
		}
	})
}

func TestRangesRefuseWhatDoesNotDivide(t *testing.T) {
	for _, mask := range []int{8, 33} {
		if _, err := newRanges(netip.MustParsePrefix("10.244.0.0/16"), mask); err == nil {
			t.Errorf("/%d: no error", mask)
		}
	}
}

// TestRangesHeldTwice checks that a range that two nodes have is free only after both nodes were
// deleted.
func TestRangesHeldTwice(t *testing.T) {
	r, err := newRanges(netip.MustParsePrefix("10.244.0.0/23"), 24)
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix("10.244.0.0/24")
	for _, step := range []struct {
		what string
		got  bool
		want bool
	}{
		{"the first", r.occupy(p, "a"), true},
		{"the first again", r.occupy(p, "a"), true},
		{"the second", r.occupy(p, "b"), false},
		{"outside", r.occupy(netip.MustParsePrefix("10.50.0.1/32"), "c"), false},
	} {
		if step.got != step.want {
			t.Errorf("%s: only holder: %t", step.what, step.got)
		}
	}
	r.release(p, "b")
	if got, err := r.next("d"); err != nil || got == p {
		t.Errorf("got %s, which node a still holds: %v", got, err)
	}
	if got, err := r.next("e"); err == nil {
		t.Errorf("got %s although all ranges are taken", got)
	}
	r.release(p, "a")
	if got, err := r.next("e"); err != nil || got != p {
		t.Errorf("got %s, %v", got, err)
	}
}
