// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"keelson.dev/keelson/pkg/provision"
)

// IPFamily selects the IP families of a cluster's nodes, pods and Services.
type IPFamily string

// The supported IP families.
const (
	IPv4 IPFamily = "ipv4" // the default family
	IPv6 IPFamily = "ipv6"
	Dual IPFamily = "dual" // both families, IPv4 first
)

var (
	errFamily      = errors.New("the IP family must be ipv4, ipv6 or dual")
	errOtherFamily = errors.New("the IP family of an existing cluster cannot change")
)

// settleFamily sets the IP family of c to that of the existing cluster. It returns an error if c
// requests another family.
func settleFamily(c *Config, has IPFamily) error {
	if c.IPFamily != "" && c.IPFamily != cmp.Or(has, IPv4) {
		return fmt.Errorf("%s has %s, want %s: %w", c.DataDir, cmp.Or(has, IPv4), c.IPFamily, errOtherFamily)
	}
	c.IPFamily = has
	return nil
}

// ranges has the addresses and address ranges of one IP family inside a cluster. All clusters use
// the same addresses, because their networks are not connected.
type ranges struct {
	control netip.Addr // address of the control plane, on the link that connects the nodes
	bits    int        // prefix length of the network on the nodes' link
	provision.Family
	nodes         string // ranges of node addresses on the nodes' link; no control plane has such an address
	loadBalancers string // addresses of Services on the nodes' link, above the last node
}

// ranges returns the address ranges of f's families, the primary family first.
func (f IPFamily) ranges() []ranges {
	v4 := ranges{
		control: netip.MustParseAddr("10.50.0.1"), bits: 24, Family: family("10.244.0.0/16", "10.96.0.0/16", "10.96.0.10"),
		nodes:         "10.50.0.8/29,10.50.0.16/28,10.50.0.32/27,10.50.0.64/26,10.50.0.128/26,10.50.0.192/28,10.50.0.208/29",
		loadBalancers: "10.50.0.224-10.50.0.254",
	}
	v6 := ranges{
		control: netip.MustParseAddr("fd50::1"), bits: 64, Family: family("fd44::/48", "fd96::/112", "fd96::a"),
		nodes:         "fd50::10/124,fd50::20/123,fd50::40/122,fd50::80/121,fd50::100/120,fd50::200/123",
		loadBalancers: "fd50::224-fd50::254",
	}
	switch f {
	case IPv6:
		return []ranges{v6}
	case Dual:
		return []ranges{v4, v6}
	default:
		return []ranges{v4}
	}
}

// family returns the address ranges that the package provision needs.
func family(pods, services, dns string) provision.Family {
	return provision.Family{Pods: netip.MustParsePrefix(pods), Services: netip.MustParsePrefix(services),
		DNS: netip.MustParseAddr(dns)}
}

// primary returns the ranges of the primary family.
func (f IPFamily) primary() ranges { return f.ranges()[0] }

// join returns one field of the ranges of all families, separated by commas, in the form that flags
// and configuration files use.
func (f IPFamily) join(field func(ranges) string) string {
	var out []string
	for _, r := range f.ranges() {
		out = append(out, field(r))
	}
	return strings.Join(out, ",")
}

// hosts returns the ranges of node addresses as prefixes.
func (r ranges) hosts() []netip.Prefix {
	var out []netip.Prefix
	for text := range strings.SplitSeq(r.nodes, ",") {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func (f IPFamily) nodeRanges() string { return f.join(func(r ranges) string { return r.nodes }) }

// LoadBalancers returns the default address ranges of Services of type LoadBalancer.
func (f IPFamily) LoadBalancers() string {
	return f.join(func(r ranges) string { return r.loadBalancers })
}

// node returns the address of the node with the given index on the nodes' link. The first node has
// 10.50.0.11 and fd50::11.
func (r ranges) node(index int) netip.Prefix {
	a := netip.MustParseAddr(fmt.Sprintf("fd50::%d", firstNode+index))
	if r.control.Is4() {
		b := r.control.As4()
		b[3] = byte(firstNode + index)
		a = netip.AddrFrom4(b)
	}
	return netip.PrefixFrom(a, r.bits)
}
