// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPack(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		rapid.Check(t, func(t *rapid.T) {
			var list []netip.AddrPort
			for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
				bytes := rapid.SliceOfN(rapid.Byte(), f.Size(), f.Size()).Draw(t, "address")
				addr, _ := netip.AddrFromSlice(bytes)
				list = append(list, netip.AddrPortFrom(addr, rapid.Uint16().Draw(t, "port")))
			}
			packed := Pack(list)
			if got := slices.Collect(packed.All()); packed.Len() != len(list) || !slices.Equal(got, list) {
				t.Fatalf("%v comes back as %v", list, got)
			}
		})
	}
}
