// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"net/netip"
	"slices"
	"unique"

	"keelson.dev/keelson/pkg/nft"
)

// Name names one port of one service, as namespace/name:port/protocol.
type Name string

// Port contains the properties of one port of a service, in one IP family, on which the nftables
// table depends. Callers must not change it after they have passed it to Set.
type Port struct {
	// VIP is the cluster IP with protocol and port. It identifies the port in the kernel's sets.
	VIP Frontend
	// Created is the service's creation time in seconds since 1970. If several ports claim the same
	// frontend, the port of the oldest service gets it.
	Created int64
	// External are the external IPs and the load balancer's addresses.
	External []netip.Addr
	NodePort uint16
	// Guarded are those addresses in External that only clients in Sources may use.
	Guarded []netip.Addr
	Sources []netip.Prefix
	// Sticky is the timeout of session affinity in seconds. 0 means no session affinity.
	Sticky uint32
	// InternalLocal and ExternalLocal report whether the internal and external traffic policies are
	// Local.
	InternalLocal, ExternalLocal bool
	// Cluster and Local are the endpoints for the traffic policies Cluster and Local, sorted and
	// unique.
	Cluster, Local Endpoints
	// Serving are the endpoints of a UDP port to which existing flows may continue, including
	// endpoints that are not ready.
	Serving Endpoints
	// Anywhere reports whether any node has an endpoint that can be used.
	Anywhere bool
	// OnNode are the addresses of those endpoints in use that are on this node.
	OnNode []netip.Addr
}

// Frontends returns all frontends that the port claims.
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

// uses reports whether the port can send packets to the endpoints of a list. With the external
// traffic policy Local it uses both lists.
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

// compiled is a port as elements: fixed elements, whose number does not depend on the number of
// endpoints, and the endpoints in their slots. A cluster has many of them, so compiled stores
// nothing that can be computed from its other fields.
type compiled struct {
	vip string
	// class is the class of packets to the cluster IP, as a value of the map Services. It is empty if
	// another port has the cluster IP. Then this port has no elements.
	class  string
	fixed  []Element    // elements of the port's frontends, except the cluster IP
	onNode []netip.Addr // copy of the port's OnNode
	slots  [2]Endpoints
	sticky bool
}

// compile returns the elements of a port. won reports whether this port has a frontend, because
// several ports may claim the same one. old are the endpoints in their current slots.
func compile(p *Port, won func(Frontend) bool, old [2]Endpoints) *compiled {
	c := &compiled{vip: p.VIP.key(), sticky: p.Sticky != 0}
	if !won(p.VIP) { // another port has the cluster IP and the elements with this key
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

// shared calls f with the elements that other ports may also want.
func (c *compiled) shared(f func(Element)) {
	if c == nil || c.class == "" {
		return
	}
	f(Element{Set: ClusterIPs, Key: c.vip[:len(c.vip)-frontendRest]})
	for _, a := range c.onNode {
		f(Element{Set: Hairpins, Key: string(a.AsSlice()) + string(a.AsSlice())})
	}
}

// internal returns the class (the way to choose an endpoint) of packets to the cluster IP.
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
		// The endpoint may be on another node. Masquerading makes its answers pass through this
		// node.
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

// place assigns the wanted endpoints to the slots 0 to n-1 and changes as few slots as possible. An
// endpoint keeps its slot if that is below n; the other endpoints fill the free slots.
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

// each calls f with every element that only this port wants.
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

// internal returns the element for the cluster IP. The port must have the cluster IP.
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
