// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// Range is a range of addresses of one IP family, including Last.
type Range struct{ First, Last netip.Addr }

// Last returns the last address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Disjoint returns the prefixes masked and sorted. It leaves out prefixes that are inside another
// one.
func Disjoint(list []netip.Prefix) []netip.Prefix {
	list = slices.Clone(list)
	for i := range list {
		list[i] = list[i].Masked()
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []netip.Prefix
	for _, p := range list {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

// Ranges returns the prefixes as sorted ranges. It merges ranges without a gap between them.
func Ranges(list []netip.Prefix) []Range {
	var out []Range
	for _, p := range Disjoint(list) {
		first, last := p.Addr(), Last(p)
		if n := len(out); n > 0 && out[n-1].Last.Next() == first {
			out[n-1].Last = last
			continue
		}
		out = append(out, Range{first, last})
	}
	return out
}

// Without returns the parts of a prefix that are in none of the others.
func Without(p netip.Prefix, others []netip.Prefix) []Range {
	first, last := p.Masked().Addr(), Last(p)
	var out []Range
	for _, gap := range Ranges(others) {
		if gap.Last.Less(first) || last.Less(gap.First) || gap.First.Is4() != first.Is4() {
			continue
		}
		if first.Less(gap.First) {
			out = append(out, Range{first, gap.First.Prev()})
		}
		if first = gap.Last.Next(); !first.IsValid() || last.Less(first) {
			return out
		}
	}
	return append(out, Range{first, last})
}

// Elements returns the elements of a set of intervals for the ranges of one IP family. The ranges
// must be sorted and disjoint. Each range becomes a start and an end.
func Elements(list []Range, ipv6 bool) []nftables.SetElement {
	var out []nftables.SetElement
	for _, r := range list {
		if r.First.Is6() != ipv6 {
			continue
		}
		out = append(out, nftables.SetElement{Key: r.First.AsSlice()})
		end := r.Last.Next() // the end of an interval is exclusive, so it is the address after the range
		if !end.IsValid() {
			break
		}
		out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
	}
	return out
}
