// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// tableName is that of our nftables table, one for each address family.
const tableName = "keelson-network"

// masquerade is whose packets leave under the node's own address, and for which destinations they do not: the
// rest of the world knows no way back to a pod, while pods and nodes see each other's own addresses.
type masquerade struct {
	from   []netip.Prefix
	except []netip.Prefix // sorted, without overlap
}

// multicast is never masqueraded: the sender is part of what is said.
func multicast() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}
}

// planMasquerade excepts every pod range and every node address of the cluster.
func planMasquerade(own []netip.Prefix, nodes []node) masquerade {
	except := multicast()
	for _, n := range nodes {
		except = append(except, n.podCIDRs...)
		for _, a := range n.addresses {
			except = append(except, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return masquerade{from: disjoint(own), except: disjoint(except)}
}

// disjoint returns the prefixes sorted, without those that lie in another.
func disjoint(list []netip.Prefix) []netip.Prefix {
	list = slices.SortedFunc(slices.Values(list), func(a, b netip.Prefix) int {
		if c := a.Masked().Addr().Compare(b.Masked().Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []netip.Prefix
	for _, p := range list {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p.Masked())
		}
	}
	return out
}

func (m masquerade) equal(o masquerade) bool {
	return slices.Equal(m.from, o.from) && slices.Equal(m.except, o.except)
}

// applyMasquerade replaces our tables by those wanted, in one transaction, unless they are what was
// applied before and are still there.
func (k *kernel) applyMasquerade(want masquerade) error {
	conn, err := nftables.New(nftables.WithNetNSFd(k.netNS))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
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
	err = errors.Join(addTable(conn, want, true), addTable(conn, want, false))
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
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

// layout is where addresses are in a packet of a family.
type layout struct {
	family           nftables.TableFamily
	key              nftables.SetDatatype
	source, dest, sz uint32
}

func layoutOf(ipv4 bool) layout {
	if ipv4 {
		return layout{nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4}
	}
	return layout{nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16}
}

func addTable(conn *nftables.Conn, want masquerade, ipv4 bool) error {
	l := layoutOf(ipv4)
	from, except := elements(want.from, ipv4), elements(want.except, ipv4)
	if len(from) == 0 {
		return nil
	}
	table := conn.AddTable(&nftables.Table{Name: tableName, Family: l.family})
	pods := &nftables.Set{Table: table, Name: "pods", KeyType: l.key, Interval: true}
	inside := &nftables.Set{Table: table, Name: "inside", KeyType: l.key, Interval: true}
	if err := errors.Join(conn.AddSet(pods, from), conn.AddSet(inside, except)); err != nil {
		return fmt.Errorf("add sets: %w", err)
	}
	chain := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	// ip saddr @pods ip daddr != @inside masquerade fully-random
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.source, Len: l.sz},
		&expr.Lookup{SourceRegister: 1, SetName: pods.Name, SetID: pods.ID},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: l.dest, Len: l.sz},
		&expr.Lookup{SourceRegister: 1, SetName: inside.Name, SetID: inside.ID, Invert: true},
		&expr.Masq{FullyRandom: true},
	}})
	return nil
}

// elements returns the prefixes of one family as intervals. Those that touch are joined: the
// end of one would have the key of the other's start.
func elements(list []netip.Prefix, ipv4 bool) []nftables.SetElement {
	var out []nftables.SetElement
	var last []byte // the end of the last interval, exclusive
	for _, p := range list {
		if p.Addr().Is4() != ipv4 {
			continue
		}
		start, end := p.Addr().AsSlice(), endOf(p)
		if len(out) > 0 && bytes.Equal(last, start) {
			out = out[:len(out)-1]
		} else {
			out = append(out, nftables.SetElement{Key: start})
		}
		if end == nil { // up to the last address there is
			return out
		}
		out = append(out, nftables.SetElement{Key: end, IntervalEnd: true})
		last = end
	}
	return out
}

// endOf returns the first address after the prefix; nil if there is none.
func endOf(p netip.Prefix) []byte {
	end := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		end[i/8] |= 0x80 >> (i % 8)
	}
	next := netip.Addr{}
	if a, ok := netip.AddrFromSlice(end); ok {
		next = a.Next()
	}
	if !next.IsValid() {
		return nil
	}
	return next.AsSlice()
}
