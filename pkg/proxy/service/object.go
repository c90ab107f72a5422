// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	apiservice "keelson.dev/api/service"
	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// labelProxyName is the label of services that another proxy handles.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Service contains the parts of a Service that the proxy needs. A cluster can have tens of
// thousands of Services. A Service value is immutable.
type Service struct {
	Name          types.NamespacedName
	created       int64
	ips           []netip.Addr // at most one address of each IP family
	ports         []port
	sticky        uint32 // timeout of session affinity in seconds; 0 means none
	healthPort    uint16
	internalLocal bool
	externalLocal bool
	more          *more
}

// port is a port with a protocol that the proxy supports.
type port struct {
	name           string
	protocol       ruleset.Protocol
	port, nodePort uint16
}

// more contains fields that few services use.
type more struct {
	external, ingress []netip.Addr
	sources           []netip.Prefix
	announcedBy       string // name of the node that must answer for the addresses in ingress
}

// nothing is the value of the field more of all services that use none of its fields. They share it
// to save memory.
var nothing more

// New returns the parts of a Service that the proxy needs. It returns nil if the service has no
// cluster IP, or if another proxy handles it.
func New(s *corev1.Service) *Service {
	ips := clusterIPs(s)
	if len(ips) == 0 || s.Labels[labelProxyName] != "" || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	out := &Service{
		Name:    types.NamespacedName{Namespace: shared(s.Namespace), Name: s.Name},
		created: s.CreationTimestamp.Unix(),
		ips:     ips,
		internalLocal: s.Spec.InternalTrafficPolicy != nil &&
			*s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		externalLocal: externalLocal(s),
		healthPort:    healthPort(s),
		more:          newMore(s),
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.sticky = stickySeconds(s)
	}
	for _, p := range s.Spec.Ports {
		if protocol := protocolOf(p.Protocol); protocol != 0 {
			out.ports = append(out.ports, port{shared(p.Name), protocol, uint16(p.Port), uint16(p.NodePort)})
		}
	}
	return out
}

// Key returns the Service's name.
func (s *Service) Key() types.NamespacedName { return s.Name }

// shared returns the one copy of a string that is shared by all callers with an equal string. It
// saves memory.
func shared(s string) string { return unique.Make(s).Value() }

// clusterIPs returns the cluster IPs of a service, at most one of each IP family.
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
	return slices.Clip(out)
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

func newMore(s *corev1.Service) *more {
	var m more
	for _, a := range s.Spec.ExternalIPs {
		m.external = addAddress(m.external, a)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		// With ipMode Proxy, packets do not arrive at the node with the load balancer's address as
		// destination, so the node needs no rules for this address.
		if i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP {
			m.ingress = addAddress(m.ingress, i.IP)
		}
	}
	for _, r := range s.Spec.LoadBalancerSourceRanges {
		// The API accepts white space around a range.
		if p, err := netip.ParsePrefix(strings.TrimSpace(r)); err == nil {
			m.sources = append(m.sources, p.Masked())
		}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		m.announcedBy = s.Annotations[apiservice.AnnouncedBy]
	}
	if len(m.external)+len(m.ingress)+len(m.sources)+len(m.announcedBy) == 0 {
		return &nothing
	}
	return &m
}

func addAddress(list []netip.Addr, s string) []netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

// sources returns the ranges of an IP family whose clients may use the load balancer. If it returns
// none, all clients may.
func (s *Service) sources(f ruleset.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range s.more.sources {
		switch {
		case ruleset.Of(r.Addr()) != f:
		case r.Bits() == 0:
			return nil
		default:
			out = append(out, r)
		}
	}
	return out
}

const defaultSticky = 10800

func stickySeconds(svc *corev1.Service) uint32 {
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil &&
		*c.ClientIP.TimeoutSeconds > 0 {
		return uint32(*c.ClientIP.TimeoutSeconds)
	}
	return defaultSticky
}

// externalLocal reports whether the external traffic policy is Local. It returns false for services
// that are not reachable from outside of the cluster.
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
