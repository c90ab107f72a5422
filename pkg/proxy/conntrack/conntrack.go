// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conntrack deletes the kernel's connection tracking entries of UDP flows that have become
// stale by a change of a service. A UDP flow has no end: as long as the client sends, the kernel
// sends its packets to the same destination as the first packet. That may be an endpoint that was
// removed and whose address may now belong to another pod. If the service had no endpoint when the
// flow began, its packets are not translated at all.
//
// The package does not delete entries of TCP and SCTP connections, which end by themselves. It also
// keeps flows to terminating endpoints that still serve, and flows that are not to a frontend of a
// service: between pods, to host ports, or out of the cluster.
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

// Claim says which flows at a UDP frontend are valid. A frontend is an address and port of a
// service.
type Claim struct {
	// Serving are the endpoints to which flows may continue.
	Serving ruleset.Endpoints
	// Departed is true if no service has the frontend any more. Then only flows whose destination
	// is not translated are valid: they go to a process of the node, or to a host outside of the
	// cluster that has the address.
	Departed bool
}

// Claims are the claims of one IP family, which say which flows are valid. Flows at frontends
// without a claim are kept.
type Claims struct {
	Frontends map[ruleset.Frontend]Claim
	// NodePorts are the node's addresses on which node ports are served. A frontend at the
	// unspecified address (a node port) applies to each of these addresses, unless Frontends has an
	// entry for the same port at the address itself.
	NodePorts map[netip.Addr]bool
}

// Table is the connection tracking table of a network namespace.
type Table struct {
	sockets map[int]*nl.SocketHandle
	links   *netlink.Handle
}

// Open opens the table of the network namespace with the file descriptor netNS, or of the process's
// namespace if netNS is 0.
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

// Close closes the connections to the kernel.
func (t *Table) Close() {
	t.links.Close()
	for _, s := range t.sockets {
		s.Close()
	}
}

// Local returns the addresses of an IP family in the namespace. If addresses change during the
// call, the list may be incomplete, which is not an error.
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

// Clean deletes the flows of an IP family that are stale according to the claims, and returns how
// many it deleted. After an error some stale flows may remain. Listing flows takes a while, so
// Clean passes each deletion to guard. guard may skip it because the claim of one of the frontends
// has changed.
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
			case !errors.Is(one, unix.ENOENT): // ENOENT means that the flow has ended or was replaced meanwhile
				failed = fmt.Errorf("delete flow: %w", one)
			}
		}, s.at...)
	}
	return n, errors.Join(err, failed)
}

// remove deletes an entry, given as the message in which the kernel listed it. The message contains
// the entry's ID.
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

// Numbers of attributes in conntrack's netlink messages that package nl does not define.
const (
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
	filterProtocol     = 1 << 3
)

// onlyUDP makes the kernel list only UDP entries, because a node may have many more entries of
// other protocols. Kernels before 5.8 ignore this filter and list all entries.
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

// checker finds stale flows: flows to a destination that their frontend no longer has.
type checker struct {
	// serving contains, for each frontend, the endpoints to which flows may continue. The value is
	// nil if the frontend has departed: no service has it any more.
	serving   map[ruleset.Frontend]map[netip.AddrPort]bool
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

// stale returns the frontends whose claims (which flows are valid) say that a flow is stale. It
// returns none if the flow is valid.
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
