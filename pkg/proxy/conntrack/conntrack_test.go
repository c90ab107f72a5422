// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

func TestFilter(t *testing.T) {
	addr := netip.MustParseAddr
	at := func(a string, port uint16) ruleset.Frontend {
		return ruleset.Frontend{Addr: addr(a), Protocol: ruleset.UDP, Port: port}
	}
	f := newFilter([]Service{
		{Frontends: []ruleset.Frontend{at("10.96.0.10", 53), at("0.0.0.0", 30053)}, Serving: []netip.AddrPort{netip.MustParseAddrPort("10.244.0.2:5353")}},
		{Frontends: []ruleset.Frontend{at("10.96.0.11", 53)}},
		{Frontends: []ruleset.Frontend{at("fd96::a", 53)}, Serving: []netip.AddrPort{netip.MustParseAddrPort("[fd44::2]:5353")}},
	})
	tests := map[string]struct {
		reason   string
		protocol uint8
		to, from string
		stale    bool
	}{
		"Serving":     {reason: "its endpoint serves", protocol: unix.IPPROTO_UDP, to: "10.96.0.10:53", from: "10.244.0.2:5353"},
		"Gone":        {reason: "its endpoint has gone", protocol: unix.IPPROTO_UDP, to: "10.96.0.10:53", from: "10.244.0.3:5353", stale: true},
		"OtherPort":   {reason: "the endpoint's port has changed", protocol: unix.IPPROTO_UDP, to: "10.96.0.10:53", from: "10.244.0.2:53", stale: true},
		"Nowhere":     {reason: "it began before there were endpoints", protocol: unix.IPPROTO_UDP, to: "10.96.0.10:53", from: "10.96.0.10:53", stale: true},
		"NodePort":    {reason: "node ports are on every address", protocol: unix.IPPROTO_UDP, to: "192.0.2.1:30053", from: "10.244.0.3:5353", stale: true},
		"TCP":         {reason: "connections end by themselves", protocol: unix.IPPROTO_TCP, to: "10.96.0.10:53", from: "10.244.0.3:5353"},
		"NoEndpoints": {reason: "nothing better to send it to", protocol: unix.IPPROTO_UDP, to: "10.96.0.11:53", from: "10.244.0.3:5353"},
		"Foreign":     {reason: "not to a service", protocol: unix.IPPROTO_UDP, to: "192.0.2.1:53", from: "192.0.2.1:53"},
		"IPv6":        {reason: "its endpoint has gone", protocol: unix.IPPROTO_UDP, to: "[fd96::a]:53", from: "[fd44::3]:5353", stale: true},
		"IPv6Serving": {reason: "its endpoint serves", protocol: unix.IPPROTO_UDP, to: "[fd96::a]:53", from: "[fd44::2]:5353"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			to, from := netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.from)
			flow := &netlink.ConntrackFlow{
				Forward: netlink.IPTuple{Protocol: tt.protocol, DstIP: net.IP(to.Addr().AsSlice()), DstPort: to.Port()},
				Reverse: netlink.IPTuple{Protocol: tt.protocol, SrcIP: net.IP(from.Addr().AsSlice()), SrcPort: from.Port()},
			}
			if got := f.MatchConntrackFlow(flow); got != tt.stale {
				t.Errorf("%s: stale is %v, want %v", tt.reason, got, tt.stale)
			}
		})
	}
}
