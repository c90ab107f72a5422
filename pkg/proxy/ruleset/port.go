// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"net/netip"
	"slices"

	"keelson.dev/keelson/pkg/nft"
)

// Name names one port of one service: namespace/name:port.
type Name string

// Port is what the ruleset has to know of one port of a service in one family.
// It is not changed once handed over.
type Port struct {
	// VIP is the cluster IP; it is the port's identity in the kernel.
	VIP Frontend
	// Created decides between services that claim the same frontend.
	Created int64
	// External are the external and load balancer addresses.
	External []netip.Addr
	NodePort uint16
	// Guarded are those of External that only Sources may use.
	Guarded []netip.Addr
	Sources []netip.Prefix
	// Sticky is the session affinity in seconds; 0: none.
	Sticky uint32
	// InternalLocal and ExternalLocal are the traffic policies.
	InternalLocal, ExternalLocal bool
	// Cluster and Local are the endpoints of the two lists, sorted and unique.
	Cluster, Local []netip.AddrPort
	// Anywhere: some node has an endpoint that works.
	Anywhere bool
	// OnNode are the addresses of endpoints in use that are on this node.
	OnNode []netip.Addr
}

// Frontends are all places where the port wants to receive packets.
func (p *Port) Frontends() []Frontend {
	list := []Frontend{p.VIP}
	for _, a := range p.External {
		list = append(list, p.at(a))
	}
	if p.NodePort != 0 {
		list = append(list, p.nodePort())
	}
	return list
}

func (p *Port) at(a netip.Addr) Frontend {
	return Frontend{Addr: a, Protocol: p.VIP.Protocol, Port: p.VIP.Port}
}

func (p *Port) nodePort() Frontend {
	return Frontend{Addr: Of(p.VIP.Addr).Unspecified(), Protocol: p.VIP.Protocol, Port: p.NodePort}
}

func (p *Port) external() bool { return len(p.External) > 0 || p.NodePort != 0 }

// uses tells whether the port ever sends packets to a list. The policy Local
// for external traffic uses both.
func (p *Port) uses(l List) bool {
	if l == LocalList {
		return p.InternalLocal || p.ExternalLocal && p.external()
	}
	return !p.InternalLocal || p.external()
}

func (p *Port) list(l List) []netip.AddrPort {
	if l == LocalList {
		return p.Local
	}
	return p.Cluster
}

// compiled is a port as elements: those that are the same whatever the number
// of endpoints, and the endpoints in their slots.
type compiled struct {
	vip    string
	sticky bool
	fixed  map[Element]struct{}
	shared map[Element]struct{} // that other ports may want as well
	slots  [2][]netip.AddrPort
}

// compile makes the elements of a port on those frontends that it has won; old
// are the slots that the endpoints have had.
func compile(p *Port, won func(Frontend) bool, old [2][]netip.AddrPort) *compiled {
	c := &compiled{vip: p.VIP.key(), sticky: p.Sticky != 0, fixed: map[Element]struct{}{}, shared: map[Element]struct{}{}}
	if !won(p.VIP) { // its elements would be those of the port that has it
		return c
	}
	c.shared[Element{Set: ClusterIPs, Key: string(p.VIP.Addr.AsSlice())}] = struct{}{}
	for l := range c.slots {
		if p.Anywhere && p.uses(List(l)) {
			c.slots[l] = place(old[l], p.list(List(l)))
		}
	}
	c.add(Services, p.VIP.key(), p.internal().Value())
	for _, f := range p.Frontends()[1:] {
		if f != p.VIP && won(f) {
			c.addExternal(p, f)
		}
	}
	for _, a := range p.OnNode {
		c.shared[Element{Set: Hairpins, Key: string(a.AsSlice()) + string(a.AsSlice())}] = struct{}{}
	}
	return c
}

func (c *compiled) add(s Set, key, value string) { c.fixed[Element{s, key, value}] = struct{}{} }

// internal is what happens to packets to the cluster IP.
func (p *Port) internal() Class {
	list := ClusterList
	if p.InternalLocal {
		list = LocalList
	}
	switch {
	case !p.Anywhere:
		return Class{Action: Reject}
	case len(p.list(list)) == 0:
		return Class{Action: Drop}
	}
	return p.pick(Direct, list, false)
}

func (p *Port) pick(s Source, l List, masquerade bool) Class {
	return Class{Action: Pick, Source: s, List: l, Masquerade: masquerade, Sticky: p.Sticky, N: uint32(len(p.list(l)))}
}

func (c *compiled) addExternal(p *Port, f Frontend) {
	source := Address
	if f.Addr.IsUnspecified() {
		source = NodePort
	} else if slices.Contains(p.Guarded, f.Addr) && len(p.Sources) > 0 {
		c.addGuard(p, f)
	}
	key := f.key()
	if !p.Anywhere {
		c.add(Services, key, Class{Action: Reject}.Value())
		return
	}
	c.add(Frontends, key, mark(0)+p.VIP.key())
	if !p.ExternalLocal {
		// The endpoint may be on another node, which has to answer through us.
		c.add(Services, key, p.pick(source, ClusterList, true).Value())
		return
	}
	action := SplitDrop
	if len(p.Local) > 0 {
		action = Split
		c.add(Externals, key+mark(uint32(LocalList)), p.pick(source, LocalList, false).Value())
	}
	if len(p.Cluster) > 0 {
		c.add(Externals, key+mark(uint32(ClusterList)), p.pick(source, ClusterList, false).Value())
	}
	c.add(Services, key, Class{Action: action, Source: source}.Value())
}

func (c *compiled) addGuard(p *Port, f Frontend) {
	key := f.key()
	c.add(Guarded, key, "")
	for _, r := range nft.Disjoint(p.Sources) {
		if Of(r.Addr()) == Of(f.Addr) {
			c.add(Sources, key+string(r.Addr().AsSlice())+key+string(nft.Last(r).AsSlice()), "")
		}
	}
}

// place puts the wanted endpoints into slots 0..n-1 so that as few as possible
// change: those that stay keep their slots, as far as these are below n, and
// the others fill the gaps.
func place(old, want []netip.AddrPort) []netip.AddrPort {
	left := make(map[netip.AddrPort]bool, len(want))
	for _, e := range want {
		left[e] = true
	}
	out := make([]netip.AddrPort, len(left))
	for i, e := range old {
		if i < len(out) && left[e] {
			out[i] = e
			delete(left, e)
		}
	}
	gap := 0
	for _, e := range want {
		if !left[e] {
			continue
		}
		delete(left, e)
		for out[gap].IsValid() {
			gap++
		}
		out[gap] = e
	}
	return out
}

// each calls f with every element that the port has to itself.
func (c *compiled) each(f func(Element)) {
	for e := range c.fixed {
		f(e)
	}
	for l := range c.slots {
		for i := range c.slots[l] {
			f(c.slotElement(List(l), i))
			if c.sticky {
				f(c.stickyElement(List(l), c.slots[l][i]))
			}
		}
	}
}

func (c *compiled) slotElement(l List, i int) Element {
	key, value := c.vip+mark(l.slot(i)), endpointKey(c.slots[l][i])
	if c.sticky {
		return Element{StickyEndpoints, key, c.vip[len(c.vip)-4:] + value}
	}
	return Element{Endpoints, key, value}
}

func (c *compiled) stickyElement(l List, e netip.AddrPort) Element {
	return Element{Set: l.sticky(), Key: c.vip + endpointKey(e)}
}
