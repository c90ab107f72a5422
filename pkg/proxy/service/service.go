// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service decides at which addresses a node accepts packets for a Service, and to which
// endpoints it sends them. It implements traffic policies, topology hints, session affinity and
// endpoint conditions as Kubernetes documents them. Its results depend only on its inputs.
package service

import (
	"net/netip"
	"slices"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Node contains the properties of the node on which decisions depend.
type Node struct {
	Name string
	Zone string
	IPs  []netip.Addr
}

// Health is the health check of a service with the external traffic policy Local. Load balancers
// send it to the node.
type Health struct {
	Port uint16
	// Local is the number of ready endpoints of the service on this node.
	Local int
}

// Plan contains the ports that a node serves for one service, and the related settings.
type Plan struct {
	Ports  []Port
	Health *Health // nil if the service has no health check
	// Announced are the load balancer addresses for which this node must answer.
	Announced []netip.Addr
}

// Port is one port of a service in one IP family.
type Port struct {
	*ruleset.Port
	Name ruleset.Name
}

// Family returns the port's family.
func (p *Port) Family() ruleset.Family { return ruleset.Of(p.VIP.Addr) }

// Port returns the port with a name in an IP family, or nil if the plan does not have it.
func (p *Plan) Port(f ruleset.Family, n ruleset.Name) *Port {
	for i := range p.Ports {
		if p.Ports[i].Name == n && p.Ports[i].Family() == f {
			return &p.Ports[i]
		}
	}
	return nil
}

// In reports whether the service has ports in an IP family.
func (p *Plan) In(f ruleset.Family) bool {
	return slices.ContainsFunc(p.Ports, func(port Port) bool { return port.Family() == f })
}

// Decide returns the plan for a service. If svc is nil, the plan is empty.
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
		if svc.healthPort != 0 && plan.Health == nil { // the primary IP family comes first and determines the health check
			plan.Health = &Health{Port: svc.healthPort, Local: len(local)}
		}
	}
	return plan
}

// newPort returns a port of a service without its endpoints.
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
	// If the load balancer's address is also configured on the node, the node may use it as the
	// source address of its own packets. So if the sources include an address of the node, the load
	// balancer's address must be an allowed source too.
	if slices.ContainsFunc(out.Sources, func(r netip.Prefix) bool { return slices.ContainsFunc(n.IPs, r.Contains) }) {
		for _, a := range out.Guarded {
			out.Sources = append(out.Sources, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// of returns those addresses that belong to an IP family.
func of(f ruleset.Family, list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		if ruleset.Of(a) == f {
			out = append(out, a)
		}
	}
	return out
}

// choose sets the endpoints of a port according to its traffic policies.
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
