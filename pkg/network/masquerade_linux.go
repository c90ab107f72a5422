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

	"keelson.dev/keelson/pkg/nft"
)

// tableName is the name of the package's nftables table in each address family.
const tableName = "keelson-network"

// masquerade says for which packets of pods the node replaces the source address by its own one. It
// is needed because hosts outside of the cluster have no route back to a pod.
type masquerade struct {
	from   []netip.Prefix // sources of the packets
	except []netip.Prefix // destinations that are not masqueraded, sorted and disjoint
}

// multicast returns the multicast ranges. Packets to them are never masqueraded, because their
// receivers depend on the sender's address.
func multicast() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}
}

// planMasquerade returns the masquerade of a node with the given pod ranges. It excludes packets to
// every pod range and every node address of the cluster.
func planMasquerade(own []netip.Prefix, nodes []node) masquerade {
	except := multicast()
	for _, n := range nodes {
		except = append(except, n.podCIDRs...)
		for _, a := range n.addresses {
			except = append(except, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return masquerade{from: nft.Disjoint(own), except: nft.Disjoint(except)}
}

func (m masquerade) equal(o masquerade) bool {
	return slices.Equal(m.from, o.from) && slices.Equal(m.except, o.except)
}

// applyMasquerade replaces the nftables tables in one transaction, unless they exist and are up to
// date.
func (k *kernel) applyMasquerade(want masquerade) error {
	conn, err := nft.Open(k.netNS)
	if err != nil {
		return err
	}
	defer conn.Close()
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list nftables tables: %w", err)
	}
	ours := slices.DeleteFunc(tables, func(t *nftables.Table) bool {
		return t.Name != tableName || t.Family != nftables.TableFamilyIPv4 && t.Family != nftables.TableFamilyIPv6
	})
	if k.applied != nil && k.applied.equal(want) && len(ours) == families(want.from) {
		return nil
	}
	for _, t := range ours {
		conn.DelTable(t)
	}
	err = errors.Join(addTable(conn, want, nft.Packet{}), addTable(conn, want, nft.Packet{IPv6: true}))
	if err := conn.Commit(err); err != nil {
		return fmt.Errorf("masquerade: %w", err)
	}
	k.applied = &want
	return nil
}

func families(list []netip.Prefix) (n int) {
	for _, is4 := range []bool{true, false} {
		if slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }) {
			n++
		}
	}
	return n
}

func addTable(conn *nft.Conn, want masquerade, p nft.Packet) error {
	from, except := nft.Elements(nft.Ranges(want.from), p.IPv6), nft.Elements(nft.Ranges(want.except), p.IPv6)
	if len(from) == 0 {
		return nil
	}
	key := nftables.TypeIPAddr
	if p.IPv6 {
		key = nftables.TypeIP6Addr
	}
	table := conn.AddTable(&nftables.Table{Name: tableName, Family: p.TableFamily()})
	pods := &nftables.Set{Table: table, Name: "pods", KeyType: key, Interval: true}
	inside := &nftables.Set{Table: table, Name: "inside", KeyType: key, Interval: true}
	if err := errors.Join(conn.AddSet(pods, nil), conn.AddSet(inside, nil), conn.Put(pods, from),
		conn.Put(inside, except)); err != nil {
		return fmt.Errorf("add sets: %w", err)
	}
	chain := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	// In nft's language: ip saddr @pods ip daddr != @inside masquerade fully-random
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		p.Source(0), nft.Member(pods.Name, 0), p.Dest(0), nft.NotMember(inside.Name, 0), &expr.Masq{FullyRandom: true},
	}})
	return nil
}
