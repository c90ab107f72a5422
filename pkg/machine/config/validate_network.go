// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/nodeclaims"
	"keelson.dev/keelson/pkg/outbound"
)

// used is a range of addresses that a configuration uses for something.
type used struct {
	at          *field.Path
	what        string
	first, last netip.Addr
}

func (u used) String() string {
	if u.first == u.last {
		return fmt.Sprintf("%s %s", u.what, u.first)
	}
	return fmt.Sprintf("%s %s-%s", u.what, u.first, u.last)
}

func (u used) overlaps(other used) bool {
	return u.first.Is6() == other.first.Is6() && !other.last.Less(u.first) && !u.last.Less(other.first)
}

// The kinds of ranges.
const (
	pods          = "pods"
	services      = "Services"
	nodes         = "nodes"
	loadBalancers = "load balancers"
	machine       = "this machine"
)

// clashes reports ranges that overlap. A range of nodes may contain the machine's address and the
// addresses of load balancers, because these are in the network of the nodes.
func (v *validator) clashes() {
	for i, b := range v.ranges {
		for _, a := range v.ranges[:i] {
			apart := a.what != b.what && a.what != nodes && b.what != nodes
			inside := a.what == pods || a.what == services || b.what == pods || b.what == services
			if (apart || inside) && a.overlaps(b) {
				v.invalidf(b.at, fmt.Sprint(b), "overlaps %s: %s", a.at, a)
			}
		}
	}
}

func (v *validator) network(at *field.Path) {
	n := v.c.Network
	v.check(at.Child("dnsDomain"), n.DNSDomain, validation.IsDNS1123Subdomain)
	v.oneOf(at.Child("plugin"), n.Plugin, PluginKeelson, PluginExternal)
	// The controller manager gives each node a range of 24 or 64 bits, and up to 65,536 nodes have one.
	podFamilies := v.cidrs(at.Child("podCIDRs"), pods, n.PodCIDRs, sizes{8, 24}, sizes{48, 64})
	// A range has at least 16 addresses, because the DNS Service has the tenth.
	serviceFamilies := v.cidrs(at.Child("serviceCIDRs"), services, n.ServiceCIDRs, sizes{8, 28}, sizes{64, 124})
	v.sameFamilies(at.Child("serviceCIDRs"), n.ServiceCIDRs, serviceFamilies, podFamilies)
	for i, text := range n.NodeCIDRs {
		v.prefix(at.Child("nodeCIDRs").Index(i), nodes, text, sizes{0, 32}, sizes{0, 128})
	}
	for i, text := range n.LoadBalancerAddresses {
		v.loadBalancer(at.Child("loadBalancerAddresses").Index(i), text)
	}
}

// sizes are the smallest and the largest allowed length of a prefix.
type sizes struct{ least, most int }

// cidrs checks one range, or one of each family. It returns the families of the ranges, with true for
// IPv6, or nil if they are not valid.
func (v *validator) cidrs(at *field.Path, what string, values []string, v4, v6 sizes) []bool {
	switch {
	case len(values) == 0:
		v.add(field.Required(at, ""))
		return nil
	case len(values) > 2:
		v.add(field.TooMany(at, len(values), 2))
		return nil
	}
	var families []bool
	for i, text := range values {
		p, ok := v.prefix(at.Index(i), what, text, v4, v6)
		if !ok {
			return nil
		}
		families = append(families, p.Addr().Is6())
	}
	if len(families) == 2 && families[0] == families[1] {
		v.invalidf(at, values, "must have different IP families")
		return nil
	}
	return families
}

func (v *validator) prefix(at *field.Path, what, text string, v4, v6 sizes) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		v.invalidf(at, text, "must be an address range such as 10.0.0.0/16")
		return p, false
	}
	if p != p.Masked() {
		v.invalidf(at, text, "has bits of an address after its prefix; the range is %s", p.Masked())
		return p, false
	}
	allowed := v4
	if p.Addr().Is6() {
		allowed = v6
	}
	if p.Bits() < allowed.least || p.Bits() > allowed.most {
		v.invalidf(at, text, "the prefix must have from %d to %d bits", allowed.least, allowed.most)
		return p, false
	}
	for _, special := range outbound.SpecialRanges() {
		// Single addresses of clouds may be in a range that is used otherwise.
		if p.Overlaps(special) && !special.IsSingleIP() {
			v.invalidf(at, text, "overlaps %s, which has a special meaning", special)
			return p, false
		}
	}
	v.ranges = append(v.ranges, used{at, what, p.Addr(), last(p)})
	return p, true
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b) // b has the length of an address
	return a
}

// sameFamilies reports families that are not those of the pods. Either may be nil if it is not valid.
func (v *validator) sameFamilies(at *field.Path, value []string, have, pods []bool) {
	if have != nil && pods != nil && !slices.Equal(have, pods) {
		v.invalidf(at, value, "must have the same IP families as network.podCIDRs, in the same order")
	}
}

func (v *validator) loadBalancer(at *field.Path, text string) {
	u := used{at: at, what: loadBalancers}
	if p, err := netip.ParsePrefix(text); err == nil {
		u.first, u.last = p.Masked().Addr(), last(p.Masked())
	} else {
		first, end, ok := strings.Cut(text, "-")
		if !ok {
			end = first
		}
		var wrong error
		u.first, err = netip.ParseAddr(first)
		u.last, wrong = netip.ParseAddr(end)
		if err != nil || wrong != nil || u.first.Is6() != u.last.Is6() || u.last.Less(u.first) {
			v.invalidf(at, text, "must be FIRST-LAST, a range in CIDR notation, or an address")
			return
		}
	}
	v.ranges = append(v.ranges, u)
}

// addresses checks the addresses of the node.
func (v *validator) addresses(at *field.Path) {
	values := v.c.Node.Addresses
	if len(values) == 0 {
		v.add(field.Required(at, "the machine has no address on an interface with a default route"))
	}
	var have []bool
	for i, text := range values {
		if a, ok := v.address(at.Index(i), text); ok {
			have = append(have, a.Is6())
		}
	}
	if len(have) != len(values) || len(have) == 0 {
		return
	}
	var want []bool
	for _, text := range v.c.Network.PodCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return // reported elsewhere
		}
		want = append(want, p.Addr().Is6())
	}
	v.sameFamilies(at, values, have, want)
}

// address checks an address of this machine.
func (v *validator) address(at *field.Path, text string) (netip.Addr, bool) {
	if text == "" {
		v.add(field.Required(at, ""))
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4In6() || a.Zone() != "" {
		v.invalidf(at, text, "must be an IP address")
		return a, false
	}
	if why := (nodeclaims.Reserved{}).Address(a); why != "" || a.IsUnspecified() {
		v.invalidf(at, text, "must be an address at which other machines reach this one")
		return a, false
	}
	v.ranges = append(v.ranges, used{at, machine, a, a})
	var allowed []netip.Prefix
	for _, text := range v.c.Network.NodeCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			allowed = append(allowed, p)
		}
	}
	if len(allowed) > 0 && !slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
		v.invalidf(at, text, "is in none of network.nodeCIDRs")
	}
	return a, true
}
