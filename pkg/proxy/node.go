// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/pkg/proxy/service"
)

func (f *family) has(r netip.Prefix) bool { return ruleset.Of(r.Addr()) == f.Family }

// followNode updates the zone, addresses and pod ranges from the Node object. It reports whether
// the ports of all services must be computed again.
func (p *Proxy) followNode() bool {
	node := p.sources.node()
	p.health.Node(node)
	return p.setNode(node)
}

// setNode does the work of followNode. node is nil if the Node does not exist. Then the values of the
// deleted Node stay, so that the node keeps its rules while its Node is created again.
func (p *Proxy) setNode(node *corev1.Node) bool {
	if node == nil && p.nodeSeen {
		return false
	}
	p.nodeSeen = node != nil
	next := service.Node{Name: p.cfg.Node}
	if p.cfg.NodeIP.IsValid() && !p.cfg.NodeIP.IsUnspecified() {
		next.IPs = append(next.IPs, p.cfg.NodeIP)
	}
	pods := p.cfg.PodRanges
	if node != nil {
		next.Zone = node.Labels[corev1.LabelTopologyZone]
		next.IPs = append(next.IPs, nodeIPs(node)...)
		if p.cfg.PodsOfNode {
			pods = prefixes(node.Spec.PodCIDRs)
		}
	}
	changed := next.Zone != p.node.Zone || !slices.Equal(next.IPs, p.node.IPs)
	rangesChanged := !slices.Equal(pods, p.ranges.Pods)
	p.node, p.ranges.Pods = next, pods
	for _, f := range p.families {
		f.ranges = f.ranges || changed && p.cfg.NodePortsPrimary
	}
	if rangesChanged {
		p.relayout()
	}
	return changed
}

// relayout reopens the nftables tables with the rules for the present settings. It is called when
// the pod ranges change, because some rules exist only if pod ranges are known.
func (p *Proxy) relayout() {
	for _, f := range p.families {
		if f.kernel == nil {
			continue
		}
		old := f.kernel
		if err := p.open(f); err != nil {
			p.log.Error("Failed to apply new pod ranges to the nftables table", "family", f.String(), "err", err)
			f.kernel = old
			continue
		}
		_ = old.Close() // an error of Close can be ignored, because no data is buffered
		f.full = true
	}
}

func nodeIPs(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind {
				out = append(out, ip)
			}
		}
	}
	return out
}

func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if r, err := netip.ParsePrefix(s); err == nil {
			out = append(out, r.Masked())
		}
	}
	return out
}

// followServiceCIDRs updates the ranges of cluster IPs from the ServiceCIDR objects.
func (p *Proxy) followServiceCIDRs() {
	list := p.sources.serviceCIDRs()
	slices.Sort(list)
	next := prefixes(slices.Compact(list))
	if slices.Equal(next, p.ranges.Services) {
		return
	}
	p.ranges.Services = next
	for _, f := range p.families {
		f.ranges = true
	}
}

// nodePorts returns the ranges of local addresses that have node ports. If limited is false, all
// local addresses of the family have node ports.
func (p *Proxy) nodePorts(of ruleset.Family) (ranges []netip.Prefix, limited bool) {
	for _, r := range p.cfg.NodePorts {
		switch {
		case ruleset.Of(r.Addr()) != of:
		case r.Bits() == 0:
			return nil, false
		default:
			ranges = append(ranges, r)
		}
	}
	if !p.cfg.NodePortsPrimary {
		return ranges, len(ranges) > 0
	}
	for _, a := range p.node.IPs {
		if ruleset.Of(a) == of && !a.IsLoopback() {
			return append(ranges, netip.PrefixFrom(a, a.BitLen())), true
		}
	}
	return ranges, true
}

// hasNodePorts reports whether node ports are served on an address of this node. The caller must
// exclude loopback addresses.
func (p *Proxy) hasNodePorts(a netip.Addr) bool {
	if ranges, limited := p.nodePorts(ruleset.Of(a)); limited {
		return slices.ContainsFunc(ranges, func(in netip.Prefix) bool { return in.Contains(a) })
	}
	return !slices.ContainsFunc(p.ranges.Announced, func(in netip.Prefix) bool { return in.Contains(a) })
}

// healthAddresses returns the addresses to listen on for health check node ports.
func (p *Proxy) healthAddresses() []string {
	ranges, _ := p.nodePorts(ruleset.IPv4)
	more, _ := p.nodePorts(ruleset.IPv6)
	if ranges = append(ranges, more...); len(ranges) == 0 {
		return []string{""}
	}
	var out []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		p.log.Error("Failed to list local addresses", "err", err)
		return []string{""}
	}
	for _, a := range addrs {
		r, err := netip.ParsePrefix(a.String())
		if err == nil && slices.ContainsFunc(ranges, func(in netip.Prefix) bool { return in.Contains(r.Addr()) }) {
			out = append(out, r.Addr().String())
		}
	}
	return out
}
