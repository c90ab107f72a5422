// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// TestClean creates one flow in the kernel for each case, and checks which flows remain after
// Clean.
func TestClean(t *testing.T) {
	at := func(a string, port uint16) ruleset.Frontend {
		return ruleset.Frontend{Addr: netip.MustParseAddr(a), Protocol: ruleset.UDP, Port: port}
	}
	serving := func(a string) Claim {
		return Claim{Serving: ruleset.Pack([]netip.AddrPort{netip.MustParseAddrPort(a)})}
	}
	claims := Claims{
		Frontends: map[ruleset.Frontend]Claim{
			at("10.96.0.10", 53): serving("10.244.0.2:5353"), at("0.0.0.0", 30053): serving("10.244.0.2:5353"),
			at("192.0.2.1", 30054): serving("10.244.0.4:5353"), at("0.0.0.0", 30054): serving("10.244.0.2:5353"),
			at("10.96.0.11", 53): {}, at("10.96.0.12", 53): {Departed: true}, at("0.0.0.0", 30055): {Departed: true},
			at("fd96::a", 53): serving("[fd44::2]:5353"), at("10.96.0.13", 53): serving("10.244.0.2:5353"),
		},
		NodePorts: map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true},
	}
	tests := map[string]struct {
		reason   string
		protocol uint8
		to, from string
		stale    bool
	}{
		"Serving": {reason: "its endpoint serves", to: "10.96.0.10:53", from: "10.244.0.2:5353"},
		"Gone":    {reason: "its endpoint has gone", to: "10.96.0.10:53", from: "10.244.0.3:5353", stale: true},
		"OtherPort": {reason: "the endpoint's port has changed", to: "10.96.0.10:53",
			from: "10.244.0.2:53", stale: true},
		"Nowhere": {reason: "it began before there were endpoints", to: "10.96.0.10:53",
			from: "10.96.0.10:53", stale: true},
		"NodePort": {reason: "node ports are on every address", to: "192.0.2.1:30053",
			from: "10.244.0.3:5353", stale: true},
		"NotNodePort":   {reason: "the address has no node ports", to: "192.0.2.9:30053", from: "10.244.0.3:5353"},
		"FrontendFirst": {reason: "a frontend goes before a node port", to: "192.0.2.1:30054", from: "10.244.0.4:5353"},
		"FrontendOnly": {reason: "the node port's endpoint is none of the frontend's",
			to: "192.0.2.1:30054", from: "10.244.0.2:5353", stale: true},
		"TCP": {reason: "connections end by themselves", protocol: unix.IPPROTO_TCP,
			to: "10.96.0.10:53", from: "10.244.0.3:5353"},
		"NoEndpoints": {reason: "packets are to be rejected", to: "10.96.0.11:53",
			from: "10.244.0.3:5353", stale: true},
		"Departed":          {reason: "no service is there", to: "10.96.0.12:53", from: "10.244.0.3:5353", stale: true},
		"DepartedElsewhere": {reason: "it has not been translated", to: "10.96.0.12:53", from: "10.96.0.12:53"},
		"DepartedNodePort":  {reason: "no service is there", to: "192.0.2.1:30055", from: "10.244.0.3:5353", stale: true},
		"Foreign":           {reason: "not to a service", to: "192.0.2.1:53", from: "10.244.0.9:53"},
		"Changed":           {reason: "what is known is not true any more", to: "10.96.0.13:53", from: "10.244.0.3:5353"},
		"IPv6":              {reason: "its endpoint has gone", to: "[fd96::a]:53", from: "[fd44::3]:5353", stale: true},
		"IPv6Serving":       {reason: "its endpoint serves", to: "[fd96::a]:53", from: "[fd44::2]:5353"},
	}
	table, handle := openTable(t)
	if err := handle.ConntrackTableFlush(1); err != nil {
		t.Fatal(err)
	}
	ports, want := map[uint16]string{}, 0
	for name, tt := range tests {
		port := uint16(1000 + len(ports))
		ports[port] = name
		client := netip.MustParseAddr("10.244.0.200")
		if netip.MustParseAddrPort(tt.to).Addr().Is6() {
			client = netip.MustParseAddr("fd44::200")
		}
		if tt.protocol == 0 {
			tt.protocol = unix.IPPROTO_UDP
		}
		put(t, handle, tt.protocol, netip.AddrPortFrom(client, port).String(), tt.to, tt.from)
		if tt.stale {
			want++
		}
	}
	deleted, there := 0, map[string]bool{}
	for _, f := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		n, err := table.Clean(f, claims, func(del func(), list ...ruleset.Frontend) {
			if list[0] != at("10.96.0.13", 53) {
				del()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		deleted += n
		left, err := handle.ConntrackTableList(1, familyOf(f))
		if err != nil {
			t.Fatal(err)
		}
		for _, flow := range left {
			there[ports[flow.Forward.SrcPort]] = true
		}
	}
	if deleted != want {
		t.Errorf("%d flows deleted, want %d", deleted, want)
	}
	for name, tt := range tests {
		if there[name] == tt.stale {
			t.Errorf("%s: %s: exists: %v", name, tt.reason, there[name])
		}
	}
}

// FuzzParse checks that the function parse does not panic on malformed messages.
func FuzzParse(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 1, 0x80, 4, 0, 1, 0x80})
	f.Add([]byte{2, 0, 0, 0, 3, 0, 1, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { parse(b) })
}
