// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conntrack makes the kernel forget flows of UDP clients that a change
// of a service has left behind. A UDP flow has no end: as long as the client
// sends, the kernel sends its packets where it sent the first one, be that an
// endpoint that has gone, whose address another pod may have by now, or, if the
// service had no endpoint yet, nowhere.
//
// Connections of TCP and SCTP end by themselves and are left alone, as are flows
// to endpoints that still serve while they terminate, and flows that are not to a
// frontend of a service: from pod to pod, to host ports, out of the cluster.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Claim says which flows at a UDP frontend are right.
type Claim struct {
	// Serving are the endpoints whose flows may go on.
	Serving ruleset.Endpoints
	// Departed is true if no service has the frontend any more. Flows that are not translated are right
	// then: they are to a process of the node, or to whatever has the address outside of the cluster.
	Departed bool
}

// Claims are those of one family. Of frontends that are not there nothing is known.
type Claims struct {
	Frontends map[ruleset.Frontend]Claim
	// NodePorts are the addresses with node ports. Frontends at the unspecified address
	// stand for them, unless the address has a frontend of its own.
	NodePorts map[netip.Addr]bool
}

// Table is the connection tracking table of a network namespace.
type Table struct {
	sockets map[int]*nl.SocketHandle
	links   *netlink.Handle
}

// Open opens the table of a namespace; 0 is that of the process.
func Open(netNS int) (*Table, error) {
	at := netns.None()
	if netNS > 0 {
		at = netns.NsHandle(netNS)
	}
	s, err := nl.GetNetlinkSocketAt(at, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	t := &Table{sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: s}}}
	err = errors.Join(s.SetSendTimeout(&nl.SocketTimeoutTv), s.SetReceiveTimeout(&nl.SocketTimeoutTv))
	if err == nil {
		t.links, err = netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open conntrack: %w", err)
	}
	return t, nil
}

// Close closes the table.
func (t *Table) Close() {
	t.links.Close()
	for _, s := range t.sockets {
		s.Close()
	}
}

// Local returns the addresses of the namespace in a family. A list that is incomplete
// because addresses change meanwhile is not an error.
func (t *Table) Local(f ruleset.Family) ([]netip.Addr, error) {
	list, err := t.links.AddrList(nil, int(inet(f)))
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, ip.Unmap())
		}
	}
	return out, nil
}

// Clean deletes those flows of a family that are stale by the claims. It returns how many
// it deleted. With an error there may be others. The walk takes a while: each deletion is made by
// guard, which may skip it if what is known of one of the frontends has changed meanwhile.
func (t *Table) Clean(f ruleset.Family, c Claims, guard func(del func(), at ...ruleset.Frontend)) (int, error) {
	type staleFlow struct {
		message []byte
		at      []ruleset.Frontend
	}
	check := newChecker(c)
	var stale []staleFlow
	dump := t.request(f, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	onlyUDP(dump)
	err := dump.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if flow, ok := parse(m); ok {
			if at := check.stale(flow); at != nil {
				stale = append(stale, staleFlow{m, at})
			}
		}
		return true
	})
	if err != nil {
		err = fmt.Errorf("list flows: %w", err)
	}
	n := 0
	var failed error
	for _, s := range stale {
		guard(func() {
			switch one := t.remove(f, s.message); {
			case one == nil:
				n++
			case !errors.Is(one, unix.ENOENT): // it has ended, or another one has its place
				failed = fmt.Errorf("delete flow: %w", one)
			}
		}, s.at...)
	}
	return n, errors.Join(err, failed)
}

// remove deletes an entry, given as the kernel has listed it: with its number.
func (t *Table) remove(f ruleset.Family, message []byte) error {
	req := t.request(f, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	req.AddRawData(message[nl.SizeofNfgenmsg:])
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

func (t *Table) request(f ruleset.Family, operation, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|operation, flags)
	req.Sockets = t.sockets
	req.AddData(&nl.Nfgenmsg{NfgenFamily: inet(f), Version: nl.NFNETLINK_V0})
	return req
}

// Attributes of netfilter's conntrack messages that package nl does not have.
const (
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	filterProtocol     = 1 << 3
)

// onlyUDP has the kernel leave out the entries of other protocols, of which a node may have many
// more. Kernels before 5.8 list them nevertheless.
func onlyUDP(dump *nl.NetlinkRequest) {
	original := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	protocol := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	protocol.AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP})
	original.AddChild(protocol)
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	filter.AddRtAttr(ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterProtocol))
	dump.AddData(original)
	dump.AddData(filter)
}

func inet(f ruleset.Family) uint8 {
	if f == ruleset.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// checker finds stale flows.
type checker struct {
	serving   map[ruleset.Frontend]map[netip.AddrPort]bool // nil for departed frontends
	nodePorts map[netip.Addr]bool
}

func newChecker(c Claims) checker {
	out := checker{serving: make(map[ruleset.Frontend]map[netip.AddrPort]bool, len(c.Frontends)), nodePorts: c.NodePorts}
	for f, claim := range c.Frontends {
		if claim.Departed {
			out.serving[f] = nil
			continue
		}
		serving := make(map[netip.AddrPort]bool, claim.Serving.Len())
		for e := range claim.Serving.All() {
			serving[e] = true
		}
		out.serving[f] = serving
	}
	return out
}

// stale returns the frontends by which a flow must not go on; none if it may.
func (c checker) stale(f flow) []ruleset.Frontend {
	own := ruleset.Frontend{Addr: f.to.Addr(), Protocol: ruleset.UDP, Port: f.to.Port()}
	at := own
	serving, ok := c.serving[at]
	if !ok && c.nodePorts[at.Addr] {
		at.Addr = ruleset.Of(at.Addr).Unspecified()
		serving, ok = c.serving[at]
	}
	if !ok || serving[f.from] || serving == nil && f.from == f.to {
		return nil
	}
	return []ruleset.Frontend{own, at}
}
