// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service decides for which addresses of a Service a node accepts packets, and to which
// endpoints it sends them. It implements traffic policies, topology hints, session affinity and
// endpoint conditions as Kubernetes documents them. All functions are pure.
package service

import (
	"net/netip"
	"slices"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Node holds the properties of the node that decisions depend on.
type Node struct {
	Name string
	Zone string
	IPs  []netip.Addr
}

// Health is the health check of a service with external traffic policy Local, which load balancers
// request from the node.
type Health struct {
	Port uint16
	// Local is the number of ready endpoints on this node.
	Local int
}

// Plan has the ports that a node serves for one service, and related settings.
type Plan struct {
	Ports  []Port
	Health *Health // nil if the service has no health check
	// Announced are the load balancer addresses that this node has to answer for.
	Announced []netip.Addr
}

// Port is one port of a service in one family.
type Port struct {
	*ruleset.Port
	Name ruleset.Name
}

// Family returns the port's family.
func (p *Port) Family() ruleset.Family { return ruleset.Of(p.VIP.Addr) }

// Port returns the port with a name in a family, or nil.
func (p *Plan) Port(f ruleset.Family, n ruleset.Name) *Port {
	for i := range p.Ports {
		if p.Ports[i].Name == n && p.Ports[i].Family() == f {
			return &p.Ports[i]
		}
	}
	return nil
}

// In reports whether the service has ports in a family.
func (p *Plan) In(f ruleset.Family) bool {
	return slices.ContainsFunc(p.Ports, func(port Port) bool { return port.Family() == f })
}

// Decide returns the plan for a service. The plan is empty if svc is nil.
func Decide(svc *Service, list []*Slice, n Node) Plan {
	var plan Plan
	if svc == nil {
		return plan
	}
	if by := svc.more.announcedBy; by != "" && by == n.Name {
		plan.Announced = svc.more.ingress
	}
	for _, ip := range svc.ips {
		f := ruleset.Of(ip)
		local := map[netip.Addr]bool{}
		for i := range svc.ports {
			p := &svc.ports[i]
			all := endpointsOf(list, f, p)
			port := Port{Port: newPort(svc, p, ip, n),
				Name: ruleset.Name(svc.Name.String() + ":" + p.name + "/" + p.protocol.String())}
			choose(port.Port, all, n)
			if p.protocol == ruleset.UDP {
				port.Serving = pack(filter(all, func(e endpoint) bool { return e.serving }))
			}
			plan.Ports = append(plan.Ports, port)
			for _, e := range all {
				if e.ready && e.onNode {
					local[e.addr.Addr()] = true
				}
			}
		}
		if svc.healthPort != 0 && plan.Health == nil { // set once, by the primary family, which comes first
			plan.Health = &Health{Port: svc.healthPort, Local: len(local)}
		}
	}
	return plan
}

// newPort returns a port without its endpoints.
func newPort(svc *Service, p *port, ip netip.Addr, n Node) *ruleset.Port {
	f := ruleset.Of(ip)
	out := &ruleset.Port{
		VIP:           ruleset.Frontend{Addr: ip, Protocol: p.protocol, Port: p.port},
		Created:       svc.created,
		NodePort:      p.nodePort,
		InternalLocal: svc.internalLocal,
		ExternalLocal: svc.externalLocal,
		Sticky:        svc.sticky,
	}
	if svc.more == &nothing {
		return out
	}
	out.Guarded, out.Sources = of(f, svc.more.ingress), svc.sources(f)
	for _, a := range slices.Concat(of(f, svc.more.external), out.Guarded) {
		if a != ip && !slices.Contains(out.External, a) {
			out.External = append(out.External, a)
		}
	}
	// If the load balancer's address is also one of the node's own, the node may use it as its
	// source address. So if the sources include an address of the node, the load balancer's address
	// must be allowed as a source too.
	if slices.ContainsFunc(out.Sources, func(r netip.Prefix) bool { return slices.ContainsFunc(n.IPs, r.Contains) }) {
		for _, a := range out.Guarded {
			out.Sources = append(out.Sources, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// of returns the addresses of a family.
func of(f ruleset.Family, list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		if ruleset.Of(a) == f {
			out = append(out, a)
		}
	}
	return out
}

// choose sets the endpoints of a port.
func choose(p *ruleset.Port, all []endpoint, n Node) {
	external := len(p.External) > 0 || p.NodePort != 0
	var cluster, local []endpoint
	if !p.InternalLocal || external {
		cluster = clusterEndpoints(all, n)
	}
	if p.InternalLocal || p.ExternalLocal && external {
		local = localEndpoints(all)
	}
	p.Cluster, p.Local = pack(cluster), pack(local)
	p.Anywhere = len(usable(all)) > 0
	p.OnNode = onNode(cluster, local)
}
