// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"strings"
)

// AddressRange is the addresses from First to Last, of one family.
type AddressRange struct{ First, Last netip.Addr }

// Contains tells whether an address is in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return a.Is6() == r.First.Is6() && !a.Less(r.First) && !r.Last.Less(a)
}

// ParseAddressRange reads FIRST-LAST, a prefix, or one address.
func ParseAddressRange(s string) (AddressRange, error) {
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		if p, err := netip.ParsePrefix(s); err == nil {
			return rangeOf(p), nil
		}
		last = first
	}
	var r AddressRange
	var err error
	if r.First, err = netip.ParseAddr(first); err != nil {
		return r, fmt.Errorf("range of addresses %q: %w", s, err)
	}
	if r.Last, err = netip.ParseAddr(last); err != nil {
		return r, fmt.Errorf("range of addresses %q: %w", s, err)
	}
	if r.First.Is6() != r.Last.Is6() || r.Last.Less(r.First) {
		return r, fmt.Errorf("range of addresses %q: must have its lowest address first", s)
	}
	return r, nil
}

func rangeOf(p netip.Prefix) AddressRange {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b) // of the length of an address
	return AddressRange{p.Masked().Addr(), last}
}
