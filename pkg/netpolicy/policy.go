// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Direction is one of the two directions in which a pod can be isolated.
type Direction int

// The directions of isolation.
const (
	Ingress Direction = iota
	Egress
)

func (d Direction) String() string { return [...]string{"ingress", "egress"}[d] }

// policy is a compiled NetworkPolicy.
type policy struct {
	pods     labels.Selector
	isolates [2]bool
	terms    [2][]term
}

// verdict is the decision of a chain about a packet.
type verdict uint8

const (
	allow verdict = iota // return to the calling chain
	deny
	pass // continue with the policies that come after the Admin tier
)

// term is a condition on connections, and the verdict for connections that match all parts of the
// condition. One rule of a policy compiles to one or more terms.
type term struct {
	peers   setDef // pods, nodes or blocks of addresses at the other end; the zero value matches all
	ports   setDef // protocols and port numbers; the zero value matches all
	named   setDef // destination addresses with protocols and port numbers; the zero value matches all
	verdict verdict
}

// compiler compiles a NetworkPolicy. A part that cannot be parsed becomes a term that matches
// nothing, so that it allows nothing.
type compiler struct {
	namespace string
	own       selector
}

func compile(np *networkingv1.NetworkPolicy) *policy {
	c := compiler{namespace: np.Namespace, own: selectorOf(np.Namespace, nil, &np.Spec.PodSelector)}
	p := &policy{pods: c.own.pods}
	p.isolates[Ingress], p.isolates[Egress] = isolates(np)
	for _, r := range np.Spec.Ingress {
		p.terms[Ingress] = append(p.terms[Ingress], c.terms(Ingress, r.From, r.Ports)...)
	}
	for _, r := range np.Spec.Egress {
		p.terms[Egress] = append(p.terms[Egress], c.terms(Egress, r.To, r.Ports)...)
	}
	return p
}

// isolates returns in which directions a policy isolates pods.
func isolates(np *networkingv1.NetworkPolicy) (ingress, egress bool) {
	if len(np.Spec.PolicyTypes) == 0 {
		return true, len(np.Spec.Egress) > 0
	}
	return slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// terms returns the terms of a rule, which are the conditions under which it allows a connection.
// For each peer these are one term with all numbered ports, and one for each named port.
func (c compiler) terms(d Direction, from []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) []term {
	peers := []setDef{{}}
	if len(from) > 0 {
		peers = nil
		for i := range from {
			peers = append(peers, c.peer(&from[i]))
		}
	}
	var out []term
	for _, peer := range peers {
		if len(ports) == 0 {
			out = append(out, term{peers: peer})
			continue
		}
		numbers, names := split(ports)
		if len(numbers) > 0 {
			out = append(out, term{peers: peer, ports: portSet(numbers)})
		}
		for _, n := range names {
			out = append(out, term{peers: peer, named: namedSet(c.destination(d, peer), n)})
		}
	}
	return out
}

// destination returns the pods whose containers define the number of a named port: the pods that
// the policy selects for ingress, and the peers for egress.
func (c compiler) destination(d Direction, peer setDef) selector {
	if d == Ingress {
		return c.own
	}
	return destinations(peer)
}

// destinations returns a selector for the peers that are pods. If the peers are no pods, it matches
// all pods.
func destinations(peers setDef) selector {
	if peers.kind == podsOf {
		return peers.selector
	}
	return selectorOf("", &metav1.LabelSelector{}, nil)
}

func (c compiler) peer(p *networkingv1.NetworkPolicyPeer) setDef {
	if p.IPBlock == nil {
		return podSet(selectorOf(c.namespace, p.NamespaceSelector, p.PodSelector))
	}
	block, err := netip.ParsePrefix(p.IPBlock.CIDR)
	if err != nil {
		return blockSet(netip.Prefix{}, nil)
	}
	var except []netip.Prefix
	for _, s := range p.IPBlock.Except {
		e, err := netip.ParsePrefix(s)
		if err != nil {
			return blockSet(netip.Prefix{}, nil)
		}
		except = append(except, e)
	}
	return blockSet(block, except)
}

// selector matches pods by their labels, either in one namespace or in the namespaces that a
// selector matches.
type selector struct {
	namespace        string
	namespaces, pods labels.Selector // namespaces is nil if the selector matches only pods of namespace
	key              string
}

// selectorOf returns the selector for a peer. Without a namespace selector it matches pods of the
// policy's namespace. Without a pod selector it matches all pods.
func selectorOf(namespace string, namespaces, pods *metav1.LabelSelector) selector {
	s := selector{namespace: namespace, pods: labels.Everything()}
	if pods != nil {
		s.pods = labelSelector(pods)
	}
	if namespaces != nil {
		s.namespace, s.namespaces = "", labelSelector(namespaces)
	}
	s.key = fmt.Sprintf("%s|%s|%s", s.namespace, text(s.namespaces), text(s.pods))
	return s
}

// text returns a text that identifies a selector. Unlike the String method, which returns "" for
// three different selectors, it returns different texts for any two selectors.
func text(s labels.Selector) string {
	switch {
	case s == nil:
		return "own"
	case s.Empty():
		return "all"
	case s.String() == "":
		return "nothing"
	}
	return s.String()
}

// labelSelector parses a selector. If the selector is invalid, the result matches nothing. The API
// server rejects invalid selectors in NetworkPolicies.
func labelSelector(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

func (s selector) matches(p *Pod, namespace labels.Set) bool {
	if s.namespaces == nil && s.namespace != p.Name.Namespace || s.namespaces != nil && !s.namespaces.Matches(namespace) {
		return false
	}
	return s.pods.Matches(p.Labels)
}

// portRange is a range of ports of one protocol.
type portRange struct {
	protocol uint8
	from, to uint16
}

// portName is the name of a port of containers, with its protocol.
type portName struct {
	protocol uint8 // protocol number; 0 means any protocol
	name     string
}

// split returns the numbered and the named ports of a rule.
func split(ports []networkingv1.NetworkPolicyPort) (numbers []portRange, names []portName) {
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		n := protocolNumber(protocol)
		switch {
		case p.Port == nil:
			numbers = append(numbers, portRange{n, 0, 65535})
		case p.Port.Type == intstr.String:
			names = append(names, portName{n, p.Port.StrVal})
		default:
			r := portRange{n, uint16(p.Port.IntVal), uint16(p.Port.IntVal)}
			if p.EndPort != nil {
				r.to = uint16(*p.EndPort)
			}
			numbers = append(numbers, r)
		}
	}
	return join(numbers), names
}

// join sorts ranges, and merges ranges that overlap or have no gap between them.
func join(list []portRange) []portRange {
	slices.SortFunc(list, func(a, b portRange) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	var out []portRange
	for _, r := range list {
		if n := len(out); n > 0 && out[n-1].protocol == r.protocol && int(r.from) <= int(out[n-1].to)+1 {
			out[n-1].to = max(out[n-1].to, r.to)
			continue
		}
		out = append(out, r)
	}
	return out
}

// ParseProtocol returns the number of a protocol that a policy can name.
func ParseProtocol(name string) (uint8, error) {
	switch p := corev1.Protocol(strings.ToUpper(name)); p {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return protocolNumber(p), nil
	}
	return 0, fmt.Errorf("protocol %q: must be TCP, UDP or SCTP", name)
}

// The numbers of the protocols that a policy can name.
const (
	protocolTCP  = 6
	protocolUDP  = 17
	protocolSCTP = 132
)

// dnsPort is the port to which a pod can always send packets on its own node. The node forwards DNS
// queries to the cluster's name servers. A policy that allows DNS names those servers, and not the
// node.
const dnsPort = 53

func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return protocolUDP
	case corev1.ProtocolSCTP:
		return protocolSCTP
	}
	return protocolTCP
}

// Pod contains the properties of a pod on which policies depend.
type Pod struct {
	Name   types.NamespacedName
	Labels labels.Set
	IPs    []netip.Addr
	Ports  []Port
	// Node is the name of the pod's node.
	Node string
	// Local is true for a pod of this node. The agent protects only these.
	Local bool
}

// Port is a named port of a container.
type Port struct {
	Name     string
	Protocol uint8
	Number   uint16
}

// PodOf returns the properties of a pod. It returns nil if the pod has no address of its own, or
// has ended: its address may then belong to another pod.
func PodOf(p *corev1.Pod, node string) *Pod {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	out := &Pod{Name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, Labels: p.Labels,
		Node: p.Spec.NodeName, Local: node != "" && p.Spec.NodeName == node}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out.IPs = append(out.IPs, a)
		}
	}
	if len(out.IPs) == 0 {
		return nil
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			if port.Name != "" {
				out.Ports = append(out.Ports, Port{port.Name, protocolNumber(port.Protocol), uint16(port.ContainerPort)})
			}
		}
	}
	return out
}

// Node contains the properties of a node on which policies depend.
type Node struct {
	Name   string
	Labels labels.Set
	IPs    []netip.Addr
}

// NodeOf returns a node's properties.
func NodeOf(n *corev1.Node) *Node {
	out := &Node{Name: n.Name, Labels: n.Labels}
	for _, address := range n.Status.Addresses {
		if a, err := netip.ParseAddr(address.Address); err == nil && !slices.Contains(out.IPs, a) {
			out.IPs = append(out.IPs, a)
		}
	}
	return out
}
