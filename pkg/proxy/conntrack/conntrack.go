// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conntrack makes the kernel forget flows of UDP clients that a change
// of a service has left behind. A UDP flow has no end: as long as the client
// sends, the kernel sends its packets where it sent the first one, be that an
// endpoint that has gone or, if the service had no endpoint yet, nowhere.
//
// Connections of TCP and SCTP end by themselves and are left alone, as are flows
// to endpoints that still serve while they terminate.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Service is one UDP port of a service: its frontends, and the endpoints whose flows may
// go on.
type Service struct {
	Frontends []ruleset.Frontend
	Serving   []netip.AddrPort
}

// Table is the connection tracking table of a network namespace.
type Table struct{ handle *netlink.Handle }

// Open opens the table of a namespace; 0 is that of the process.
func Open(netNS int) (*Table, error) {
	at := netns.None()
	if netNS > 0 {
		at = netns.NsHandle(netNS)
	}
	h, err := netlink.NewHandleAt(at, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	return &Table{handle: h}, nil
}

// Close closes the table.
func (t *Table) Close() { t.handle.Close() }

// Clean deletes those flows of a family to the services that do not go to an endpoint
// that serves. It returns how many it deleted.
func (t *Table) Clean(f ruleset.Family, services []Service) (int, error) {
	family := netlink.InetFamily(unix.AF_INET)
	if f == ruleset.IPv6 {
		family = unix.AF_INET6
	}
	n, err := t.handle.ConntrackDeleteFilters(netlink.ConntrackTable, family, newFilter(services))
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return int(n), fmt.Errorf("delete flows: %w", err)
	}
	return int(n), nil
}

// filter matches flows that are stale.
type filter map[ruleset.Frontend]map[netip.AddrPort]bool

func newFilter(services []Service) filter {
	out := filter{}
	for _, s := range services {
		if len(s.Serving) == 0 { // packets are rejected, whichever flow they are of
			continue
		}
		serving := map[netip.AddrPort]bool{}
		for _, e := range s.Serving {
			serving[e] = true
		}
		for _, f := range s.Frontends {
			out[f] = serving
		}
	}
	return out
}

var _ netlink.CustomConntrackFilter = filter{}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f filter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, ok1 := netip.AddrFromSlice(flow.Forward.DstIP)
	from, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP)
	if !ok1 || !ok2 {
		return false
	}
	to, from = to.Unmap(), from.Unmap()
	at := ruleset.Frontend{Addr: to, Protocol: ruleset.UDP, Port: flow.Forward.DstPort}
	serving, ok := f[at]
	if !ok { // perhaps a node port
		at.Addr = ruleset.Of(to).Unspecified()
		serving, ok = f[at]
	}
	return ok && !serving[netip.AddrPortFrom(from, flow.Reverse.SrcPort)]
}
