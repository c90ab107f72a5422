// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/test/unshare"
)

func TestMain(m *testing.M) { unshare.Run(m, unshare.Network) }

func openTable(tb testing.TB) (*Table, *netlink.Handle) {
	tb.Helper()
	unshare.Need(tb)
	t, err := Open(0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(h.Close)
	return t, h
}

func put(tb testing.TB, h *netlink.Handle, protocol uint8, from, to, answer string) {
	tb.Helper()
	f, d, a := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to), netip.MustParseAddrPort(answer)
	family := inet(ruleset.Of(f.Addr()))
	flow := &netlink.ConntrackFlow{
		FamilyType: family, TimeOut: 3600,
		Forward: netlink.IPTuple{Protocol: protocol, SrcIP: f.Addr().AsSlice(), SrcPort: f.Port(),
			DstIP: d.Addr().AsSlice(), DstPort: d.Port()},
		Reverse: netlink.IPTuple{Protocol: protocol, SrcIP: a.Addr().AsSlice(), SrcPort: a.Port(),
			DstIP: f.Addr().AsSlice(), DstPort: f.Port()},
	}
	if protocol == unix.IPPROTO_TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: 3}
	}
	if err := h.ConntrackCreate(netlink.ConntrackTable, familyOf(ruleset.Of(f.Addr())), flow); err != nil {
		tb.Fatal(err)
	}
}

func familyOf(f ruleset.Family) netlink.InetFamily { return netlink.InetFamily(inet(f)) }

// BenchmarkClean measures the cost of one change of a service on a node with 100,000 flows. One
// tenth of them are UDP flows.
func BenchmarkClean(b *testing.B) {
	t, h := openTable(b)
	const flows = 100_000
	for i := range flows {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), uint16(1024+i>>16))
		protocol := uint8(unix.IPPROTO_TCP)
		if i%10 == 0 {
			protocol = unix.IPPROTO_UDP
		}
		put(b, h, protocol, from.String(), "10.96.0.10:53", "10.244.0.2:5353")
	}
	claims := Claims{Frontends: map[ruleset.Frontend]Claim{
		{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: ruleset.UDP,
			Port: 53}: {Serving: ruleset.Pack([]netip.AddrPort{netip.MustParseAddrPort("10.244.0.2:5353")})},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := t.Clean(ruleset.IPv4, claims, func(del func(), _ ...ruleset.Frontend) { del() }); err != nil || n != 0 {
			b.Fatal(n, err)
		}
	}
}
