// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service decides what a node does for a Service: which of its
// addresses packets are taken from, and which endpoints they go to. It is the
// meaning of the traffic policies, topology hints, session affinity and the
// conditions of endpoints, as Kubernetes documents them, and it is pure.
package service

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	apiservice "keelson.dev/api/service"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Node is what decisions depend on of the node that they are for.
type Node struct {
	Name string
	Zone string
	IPs  []netip.Addr
}

// Health is what the health check of a load balancer asks a node.
type Health struct {
	Port uint16
	// Local is the number of ready endpoints on this node.
	Local int
}

// Plan is what a node does for one service.
type Plan struct {
	Ports  map[ruleset.Family]map[ruleset.Name]*ruleset.Port
	Health *Health // nil: the service has no health check
	// Serving are the endpoints, ready or not, whose flows may go on, by UDP port.
	Serving map[ruleset.Family]map[ruleset.Name][]netip.AddrPort
	// Announced are the addresses of its load balancer if this node is to answer for them.
	Announced []netip.Addr
}

// labelProxyName and labelHeadless keep services and slices from us.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

// Decide returns the plan for a service, which is empty for one that has no cluster
// IP or is not for this proxy.
func Decide(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice, n Node) Plan {
	plan := Plan{
		Ports:   map[ruleset.Family]map[ruleset.Name]*ruleset.Port{},
		Serving: map[ruleset.Family]map[ruleset.Name][]netip.AddrPort{},
	}
	if svc == nil || svc.Labels[labelProxyName] != "" || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return plan
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Annotations[apiservice.AnnouncedBy] == n.Name {
		plan.Announced = slices.Concat(ingress(svc, ruleset.IPv4), ingress(svc, ruleset.IPv6))
	}
	endpointSlices = slices.DeleteFunc(slices.Clone(endpointSlices), func(s *discoveryv1.EndpointSlice) bool {
		_, headless := s.Labels[labelHeadless]
		return headless
	})
	for _, ip := range clusterIPs(svc) {
		f := ruleset.Of(ip)
		ports, serving := map[ruleset.Name]*ruleset.Port{}, map[ruleset.Name][]netip.AddrPort{}
		local := map[netip.Addr]bool{}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			name := ruleset.Name(svc.Namespace + "/" + svc.Name + ":" + p.Name + "/" + string(p.Protocol))
			all := endpointsOf(endpointSlices, f, p, n)
			port := newPort(svc, p, ip, n)
			if port == nil {
				continue
			}
			choose(port, all, n)
			ports[name] = port
			if port.VIP.Protocol == ruleset.UDP {
				serving[name] = addresses(filter(all, func(e endpoint) bool { return e.serving }))
			}
			for _, e := range all {
				if e.ready && e.onNode {
					local[e.addr.Addr()] = true
				}
			}
		}
		plan.Ports[f], plan.Serving[f] = ports, serving
		if h := healthPort(svc); h != 0 && plan.Health == nil { // of the primary family
			plan.Health = &Health{Port: h, Local: len(local)}
		}
	}
	return plan
}

// clusterIPs are the cluster IPs, at most one of each family.
func clusterIPs(svc *corev1.Service) []netip.Addr {
	list := svc.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{svc.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err == nil && !slices.ContainsFunc(out, func(b netip.Addr) bool { return ruleset.Of(b) == ruleset.Of(a) }) {
			out = append(out, a)
		}
	}
	return out
}

func protocolOf(p corev1.Protocol) ruleset.Protocol {
	switch p {
	case corev1.ProtocolTCP:
		return ruleset.TCP
	case corev1.ProtocolUDP:
		return ruleset.UDP
	case corev1.ProtocolSCTP:
		return ruleset.SCTP
	}
	return 0
}

// newPort returns everything of a port but its endpoints; nil if its protocol is none
// that we know.
func newPort(svc *corev1.Service, p *corev1.ServicePort, ip netip.Addr, n Node) *ruleset.Port {
	protocol := protocolOf(p.Protocol)
	if protocol == 0 {
		return nil
	}
	f := ruleset.Of(ip)
	out := &ruleset.Port{
		VIP:           ruleset.Frontend{Addr: ip, Protocol: protocol, Port: uint16(p.Port)},
		Created:       svc.CreationTimestamp.Unix(),
		NodePort:      uint16(p.NodePort),
		InternalLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal: externalLocal(svc),
		Guarded:       ingress(svc, f),
		Sources:       sources(svc, f),
	}
	if a := svc.Spec.SessionAffinity; a == corev1.ServiceAffinityClientIP {
		out.Sticky = stickySeconds(svc)
	}
	for _, s := range svc.Spec.ExternalIPs {
		out.External = addAddress(out.External, s, f)
	}
	for _, a := range out.Guarded {
		out.External = addAddress(out.External, a.String(), f)
	}
	out.External = slices.DeleteFunc(out.External, func(a netip.Addr) bool { return a == ip })
	// A node that may use the load balancer may find itself sending from the balancer's address, if
	// that is also one of its own.
	if slices.ContainsFunc(out.Sources, func(r netip.Prefix) bool { return slices.ContainsFunc(n.IPs, r.Contains) }) {
		for _, a := range out.Guarded {
			out.Sources = append(out.Sources, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

func addAddress(list []netip.Addr, s string, f ruleset.Family) []netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || ruleset.Of(a) != f || slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

const defaultSticky = 10800

func stickySeconds(svc *corev1.Service) uint32 {
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && *c.ClientIP.TimeoutSeconds > 0 {
		return uint32(*c.ClientIP.TimeoutSeconds)
	}
	return defaultSticky
}

// externalLocal is true only for services that are reached from outside.
func externalLocal(svc *corev1.Service) bool {
	reachable := svc.Spec.Type == corev1.ServiceTypeLoadBalancer || svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeClusterIP && len(svc.Spec.ExternalIPs) > 0
	return reachable && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func healthPort(svc *corev1.Service) uint16 {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || !externalLocal(svc) {
		return 0
	}
	return uint16(svc.Spec.HealthCheckNodePort)
}

// ingress are the addresses of the load balancer that arrive at nodes as they are.
func ingress(svc *corev1.Service, f ruleset.Family) []netip.Addr {
	var out []netip.Addr
	for _, i := range svc.Status.LoadBalancer.Ingress {
		if i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP {
			out = addAddress(out, i.IP, f)
		}
	}
	return out
}

// sources are the ranges that may use the load balancer; none: all. White space around
// them is accepted by the API.
func sources(svc *corev1.Service, f ruleset.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range svc.Spec.LoadBalancerSourceRanges {
		r, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || ruleset.Of(r.Addr()) != f {
			continue
		}
		if r.Bits() == 0 {
			return nil
		}
		out = append(out, r.Masked())
	}
	return out
}

// choose fills in the endpoints.
func choose(p *ruleset.Port, all []endpoint, n Node) {
	external := len(p.External) > 0 || p.NodePort != 0
	var cluster, local []endpoint
	if !p.InternalLocal || external {
		cluster = clusterEndpoints(all, n)
	}
	if p.InternalLocal || p.ExternalLocal && external {
		local = localEndpoints(all)
	}
	p.Cluster, p.Local = addresses(cluster), addresses(local)
	p.Anywhere = len(usable(all)) > 0
	p.OnNode = onNode(cluster, local)
}
