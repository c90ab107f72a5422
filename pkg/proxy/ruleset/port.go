// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"net/netip"
	"slices"
	"unique"

	"keelson.dev/keelson/pkg/nft"
)

// Name names one port of one service: namespace/name:port.
type Name string

// Port has the properties of one port of a service in one family that the table depends on. It must
// not be changed after it was passed to Set.
type Port struct {
	// VIP is the cluster IP with protocol and port. It identifies the port in the kernel.
	VIP Frontend
	// Created is when the service was created, in seconds since 1970. If several ports claim the
	// same frontend, the port of the oldest service gets it.
	Created int64
	// External are the external and load balancer addresses.
	External []netip.Addr
	NodePort uint16
	// Guarded are the addresses in External that only Sources may use.
	Guarded []netip.Addr
	Sources []netip.Prefix
	// Sticky is the session affinity in seconds. 0 means none.
	Sticky uint32
	// InternalLocal and ExternalLocal are the traffic policies.
	InternalLocal, ExternalLocal bool
	// Cluster and Local are the endpoints of the two lists, sorted and unique.
	Cluster, Local Endpoints
	// Serving are the endpoints of a UDP port whose existing flows may continue, even if they are
	// not ready.
	Serving Endpoints
	// Anywhere reports whether any node has a working endpoint.
	Anywhere bool
	// OnNode are the addresses of used endpoints on this node.
	OnNode []netip.Addr
}

// Frontends returns all addresses and ports at which the port wants to receive packets.
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

// uses reports whether the port ever sends packets to a list. The policy Local for external
// traffic uses both lists.
func (p *Port) uses(l List) bool {
	if l == LocalList {
		return p.InternalLocal || p.ExternalLocal && p.external()
	}
	return !p.InternalLocal || p.external()
}

func (p *Port) list(l List) Endpoints {
	if l == LocalList {
		return p.Local
	}
	return p.Cluster
}

// compiled is a port as elements: fixed elements, which do not depend on the number of endpoints,
// and endpoints in their slots. There is one for each port of each service, so it stores nothing
// that can be derived from the rest.
type compiled struct {
	vip string
	// class is the value of the class of packets to the cluster IP. It is empty if another port has
	// the cluster IP. Then this port has no elements.
	class  string
	fixed  []Element    // elements of the frontends other than the cluster IP
	onNode []netip.Addr // copy of the port's OnNode
	slots  [2]Endpoints
	sticky bool
}

// compile returns the elements of a port. won reports whether the port has a frontend, which
// another port may claim too. old has the endpoints in their current slots.
func compile(p *Port, won func(Frontend) bool, old [2]Endpoints) *compiled {
	c := &compiled{vip: p.VIP.key(), sticky: p.Sticky != 0}
	if !won(p.VIP) { // the elements with this key belong to the port that has the cluster IP
		return c
	}
	for l := range c.slots {
		if p.Anywhere && p.uses(List(l)) {
			c.slots[l] = place(old[l], p.list(List(l)))
		}
	}
	c.class, c.onNode = unique.Make(p.internal().Value()).Value(), p.OnNode
	frontends := p.Frontends()
	for i, f := range frontends {
		if !slices.Contains(frontends[:i], f) && f != p.VIP && won(f) {
			c.addExternal(p, f)
		}
	}
	c.fixed = slices.Clip(c.fixed)
	return c
}

func (c *compiled) add(s Set, key, value string) { c.fixed = append(c.fixed, Element{s, key, value}) }

// shared calls f with the elements that other ports may have in common with this one.
func (c *compiled) shared(f func(Element)) {
	if c == nil || c.class == "" {
		return
	}
	f(Element{Set: ClusterIPs, Key: c.vip[:len(c.vip)-frontendRest]})
	for _, a := range c.onNode {
		f(Element{Set: Hairpins, Key: string(a.AsSlice()) + string(a.AsSlice())})
	}
}

// internal returns the class of packets to the cluster IP.
func (p *Port) internal() Class {
	list := ClusterList
	if p.InternalLocal {
		list = LocalList
	}
	switch {
	case !p.Anywhere:
		return Class{Action: Reject}
	case p.list(list).Len() == 0:
		return Class{Action: Drop}
	}
	return p.pick(Direct, list, false)
}

func (p *Port) pick(s Source, l List, masquerade bool) Class {
	return Class{Action: Pick, Source: s, List: l, Masquerade: masquerade, Sticky: p.Sticky, N: uint32(p.list(l).Len())}
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
	c.add(Frontends, key, mark(0)+c.vip)
	if !p.ExternalLocal {
		// The endpoint may be on another node. Masquerading makes its answers come back through
		// this node.
		c.add(Services, key, p.pick(source, ClusterList, true).Value())
		return
	}
	action := SplitDrop
	if p.Local.Len() > 0 {
		action = Split
		c.add(Externals, key+mark(uint32(LocalList)), p.pick(source, LocalList, false).Value())
	}
	if p.Cluster.Len() > 0 {
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

// place assigns the wanted endpoints to slots 0 to n-1 with as few changes as possible: an endpoint
// keeps its slot if that is below n, and the other endpoints fill the gaps.
func place(old, want Endpoints) Endpoints {
	if old.Len() == 0 {
		return want
	}
	left := make(map[string]bool, want.Len())
	for e := range want.each {
		left[e] = true
	}
	out := make([]string, len(left))
	for i := range min(len(out), old.Len()) {
		if e := old.at(i); left[e] {
			out[i] = e
			delete(left, e)
		}
	}
	gap := 0
	for e := range want.each {
		if !left[e] {
			continue
		}
		delete(left, e)
		for out[gap] != "" {
			gap++
		}
		out[gap] = e
	}
	return want.of(out)
}

// each calls f with every element that belongs to this port alone.
func (c *compiled) each(f func(Element)) {
	if c.class != "" {
		f(c.internal())
	}
	for _, e := range c.fixed {
		f(e)
	}
	for l := range c.slots {
		for i := range c.slots[l].Len() {
			f(c.slotElement(List(l), i))
			if c.sticky {
				f(c.stickyElement(List(l), c.slots[l].at(i)))
			}
		}
	}
}

// internal returns the element of the cluster IP. The port must have the cluster IP.
func (c *compiled) internal() Element { return Element{Services, c.vip, c.class} }

func (c *compiled) slotElement(l List, i int) Element {
	key, value := c.vip+mark(l.slot(i)), c.slots[l].at(i)
	if c.sticky {
		return Element{StickyEndpoints, key, c.vip[len(c.vip)-4:] + value}
	}
	return Element{EndpointSlots, key, value}
}

func (c *compiled) stickyElement(l List, e string) Element {
	return Element{Set: l.sticky(), Key: c.vip + e}
}
