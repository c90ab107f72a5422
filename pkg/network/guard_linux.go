// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"keelson.dev/keelson/pkg/nft"
)

// guardName is the name of the nftables tables that drop packets with forged source addresses.
// There is one table for each address family.
const guardName = "keelson-guard"

// guard contains the data from which a node determines whether a packet's source address is forged.
type guard struct {
	// pods are this node's own pod ranges. Packets with a source address in them may come only from
	// the bridge, where each pod can send only from its own addresses (package ports).
	pods []netip.Prefix
	// tunnel reports whether the node has a VXLAN device. The device itself accepts packets from
	// any sender.
	tunnel bool
	// nodes are the addresses that may send VXLAN packets to this node.
	nodes []netip.Prefix
}

// planGuard returns the guard of the node self. Only other nodes may send packets through the
// tunnel.
func planGuard(self string, own []netip.Prefix, nodes []node, tunnel bool) guard {
	g := guard{pods: nft.Disjoint(own), tunnel: tunnel}
	var peers []netip.Prefix
	for _, n := range nodes {
		for _, a := range n.addresses {
			if tunnel && n.name != self {
				peers = append(peers, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	g.nodes = nft.Disjoint(peers)
	return g
}

func (g guard) equal(o guard) bool {
	return g.tunnel == o.tunnel && slices.Equal(g.pods, o.pods) && slices.Equal(g.nodes, o.nodes)
}

// applyGuard replaces the nftables tables in one transaction, unless they exist and are up to date.
// If the node has no pod ranges, it removes them.
func (k *kernel) applyGuard(want guard) error {
	conn, err := nft.Open(k.netNS)
	if err != nil {
		return err
	}
	defer conn.Close()
	packets := []nft.Packet{{}, {IPv6: true}}
	same := k.guarded != nil && k.guarded.equal(want)
	for _, p := range packets {
		there, err := conn.Present(&nftables.Table{Name: guardName, Family: p.TableFamily()})
		if err != nil {
			return err
		}
		same = same && there == (len(want.pods) > 0)
	}
	if same {
		return nil
	}
	var errs []error
	for _, p := range packets {
		t := &nftables.Table{Name: guardName, Family: p.TableFamily()}
		conn.Drop(t)
		if len(want.pods) > 0 {
			errs = append(errs, addGuard(conn, t, want, p))
		}
	}
	if err := conn.Commit(errors.Join(errs...)); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	k.guarded = &want
	return nil
}

func addGuard(conn *nft.Conn, t *nftables.Table, want guard, p nft.Packet) error {
	conn.AddTable(t)
	key := nftables.TypeIPAddr
	if p.IPv6 {
		key = nftables.TypeIP6Addr
	}
	pods := &nftables.Set{Table: t, Name: "pods", KeyType: key, Interval: true}
	nodes := &nftables.Set{Table: t, Name: "nodes", KeyType: key, Interval: true}
	if err := errors.Join(conn.AddSet(pods, nil), conn.AddSet(nodes, nil),
		conn.Put(pods, nft.Elements(nft.Ranges(want.pods), p.IPv6)),
		conn.Put(nodes, nft.Elements(nft.Ranges(want.nodes), p.IPv6))); err != nil {
		return fmt.Errorf("add sets: %w", err)
	}
	prerouting := conn.AddChain(&nftables.Chain{
		Name: "prerouting", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
	})
	input := conn.AddChain(&nftables.Chain{
		Name: "input", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter,
	})
	add := func(c *nftables.Chain, parts ...[]expr.Any) {
		exprs := append(slices.Concat(parts...), &expr.Counter{}, nft.Drop())
		conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: exprs})
	}
	fromOutside := slices.Concat(notFrom(bridgeName), notFrom("lo"), untracked())
	add(prerouting, fromOutside, []expr.Any{p.Source(0), nft.Member(pods.Name, 0)})
	if p.IPv6 {
		// Drop packets that come from another link and have an address of the node as their source.
		// For IPv4 the kernel itself drops them.
		add(prerouting, fromOutside, nft.IsLocal(false))
	} else {
		// With host ports, loopback addresses are routable. Packets from other links must not open
		// connections to these addresses.
		add(input, notFrom("lo"), loopbackDest(p), notEstablished())
	}
	if want.tunnel {
		add(input, []expr.Any{
			p.Protocol(0), &expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: []byte{unix.IPPROTO_UDP}},
			p.DestPort(0), &expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: []byte{vxlanPort >> 8, vxlanPort & 0xff}},
			// Compare the network identifier in the VXLAN header, because other networks may use
			// the same port. A match of the destination address would not be enough, because the
			// device accepts packets to any address of the node.
			&expr.Payload{DestRegister: nft.Reg(0), Base: expr.PayloadBaseTransportHeader, Offset: 8 + 4, Len: 3},
			&expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: []byte{0, 0, vxlanID}},
			p.Source(0), nft.NotMember(nodes.Name, 0),
		})
	}
	return nil
}

// notFrom matches packets that arrive on a link other than the given one.
func notFrom(link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: nft.Reg(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: nft.Reg(0), Data: name}}
}

// untracked matches packets without a connection tracking entry, in a chain that runs before
// connection tracking. It does not match copies of the node's own multicast packets. The kernel
// delivers such a copy to the node as if it had arrived on the link, but the packet was tracked
// when it was sent. "meta pkttype" cannot be used instead, because nftables reports such a copy as
// ordinary multicast.
func untracked() []expr.Any {
	const invalid = 1 // nftables also reports this state for packets without a state
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Reg(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: nft.Native(invalid)},
	}
}

// loopbackDest matches IPv4 packets to 127.0.0.0/8.
func loopbackDest(p nft.Packet) []expr.Any {
	return []expr.Any{
		p.Dest(0),
		&expr.Bitwise{SourceRegister: nft.Reg(0), DestRegister: nft.Reg(0), Len: 4, Mask: []byte{0xff, 0, 0, 0},
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: []byte{127, 0, 0, 0}},
	}
}

// notEstablished matches packets that begin a connection, because they do not belong to an existing
// one.
func notEstablished() []expr.Any {
	const establishedOrRelated = 2 | 4
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Reg(0)},
		&expr.Bitwise{SourceRegister: nft.Reg(0), DestRegister: nft.Reg(0), Len: 4,
			Mask: nft.Native(establishedOrRelated), Xor: nft.Native(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: nft.Reg(0), Data: nft.Native(0)},
	}
}
