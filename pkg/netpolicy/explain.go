// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Party is one end of a connection: a pod, or an address that belongs to no pod.
type Party struct {
	Pod  *Pod
	Addr netip.Addr
}

// Flow is a connection for which Explain finds out which policies allow or deny it.
type Flow struct {
	From, To Party
	Protocol uint8
	Port     uint16
}

// Cell contains all objects of a cluster, except pods, on which decisions about flows (connections)
// depend.
type Cell struct {
	Policies   []*networkingv1.NetworkPolicy
	Cluster    []*policyv1alpha2.ClusterNetworkPolicy
	Namespaces map[string]labels.Set
	Nodes      []*Node
}

// Side is the decision about a flow (a connection) by the policies of one of its pods: egress for
// the sender, ingress for the receiver.
type Side struct {
	// Admin is the rule of the Admin tier that decides the flow, or passes it to NetworkPolicies. It
	// is nil if no rule of the tier matches.
	Admin *Decision
	// Isolating are the NetworkPolicies that isolate the pod in this direction. Allowing are those of
	// them that allow the flow.
	Isolating, Allowing []types.NamespacedName
	// Baseline is the rule of the Baseline tier that decides the flow. It is nil if no rule matches,
	// or if a NetworkPolicy isolates the pod.
	Baseline *Decision
	// OwnNode is true if the other end is the pod's node. NetworkPolicies do not apply to
	// connections to that node. No policy applies to connections from it, or to DNS queries to it.
	OwnNode bool
}

// Allowed reports whether the policies of this side allow the flow.
func (s Side) Allowed() bool {
	switch {
	case s.Admin != nil && s.Admin.Action != policyv1alpha2.ClusterNetworkPolicyRuleActionPass:
		return s.Admin.allows()
	case len(s.Isolating) > 0:
		return len(s.Allowing) > 0 || s.OwnNode
	}
	return s.Baseline == nil || s.Baseline.allows()
}

// Verdict contains the decisions about a flow (a connection) for both directions: egress of the
// sender, and ingress of the receiver.
type Verdict struct{ Egress, Ingress Side }

// Allowed reports whether the decisions for both directions allow the connection.
func (v Verdict) Allowed() bool { return v.Egress.Allowed() && v.Ingress.Allowed() }

// Explain evaluates a flow (a connection) against all policies of a cluster. It examines every
// policy, so it is meant for questions of users and not for packets.
func Explain(f Flow, c Cell) Verdict {
	if f.From.Pod != nil && f.To.Pod != nil && f.From.Pod.Name == f.To.Pod.Name {
		return Verdict{} // a pod can always reach itself
	}
	if c.onOwnNode(f.To.Pod, f.From) {
		return Verdict{Ingress: Side{OwnNode: true}} // a pod's node can always reach the pod
	}
	ownNode := c.onOwnNode(f.From.Pod, f.To)
	if ownNode && f.Port == dnsPort && (f.Protocol == protocolTCP || f.Protocol == protocolUDP) {
		return Verdict{Egress: Side{OwnNode: true}} // a pod can always send DNS queries to its node
	}
	j := matcher{Flow: f, Cell: c}
	var v Verdict
	j.clusterSide(&v.Egress, Egress)
	j.clusterSide(&v.Ingress, Ingress)
	v.Egress.OwnNode = ownNode
	for _, np := range c.Policies {
		ingress, egress := isolates(np)
		if egress && selects(np, f.From.Pod) {
			j.side(&v.Egress, np, slices.ContainsFunc(np.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
				return j.rule(np, f.To, r.To, r.Ports)
			}))
		}
		if ingress && selects(np, f.To.Pod) {
			j.side(&v.Ingress, np, slices.ContainsFunc(np.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
				return j.rule(np, f.From, r.From, r.Ports)
			}))
		}
	}
	return v
}

type matcher struct {
	Flow
	Cell
}

func selects(np *networkingv1.NetworkPolicy, p *Pod) bool {
	return p != nil && p.Name.Namespace == np.Namespace && labelSelector(&np.Spec.PodSelector).Matches(p.Labels)
}

func (matcher) side(s *Side, np *networkingv1.NetworkPolicy, allowed bool) {
	name := types.NamespacedName{Namespace: np.Namespace, Name: np.Name}
	s.Isolating = append(s.Isolating, name)
	if allowed {
		s.Allowing = append(s.Allowing, name)
	}
}

func (j matcher) rule(np *networkingv1.NetworkPolicy, other Party, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) bool {
	port := len(ports) == 0 || slices.ContainsFunc(ports, j.port)
	return port && (len(peers) == 0 ||
		slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return j.peer(np, other, p) }))
}

func (j matcher) port(p networkingv1.NetworkPolicyPort) bool {
	if want := p.Protocol; want == nil && j.Protocol != 6 || want != nil && protocolNumber(*want) != j.Protocol {
		return false
	}
	switch {
	case p.Port == nil:
		return true
	case p.Port.Type == intstr.String:
		return j.To.Pod != nil && slices.Contains(j.To.Pod.Ports, Port{p.Port.StrVal, j.Protocol, j.Port})
	case p.EndPort != nil:
		return int32(j.Port) >= p.Port.IntVal && int32(j.Port) <= *p.EndPort
	}
	return int32(j.Port) == p.Port.IntVal
}

func (j matcher) peer(np *networkingv1.NetworkPolicy, other Party, p networkingv1.NetworkPolicyPeer) bool {
	if p.IPBlock != nil {
		return inBlock(other.Addr, p.IPBlock)
	}
	if other.Pod == nil {
		return false
	}
	where := other.Pod.Name.Namespace
	if p.NamespaceSelector == nil && where != np.Namespace || p.NamespaceSelector != nil &&
		!matches(p.NamespaceSelector, j.Namespaces[where]) {
		return false
	}
	return p.PodSelector == nil || matches(p.PodSelector, other.Pod.Labels)
}

func matches(s *metav1.LabelSelector, l labels.Set) bool { return labelSelector(s).Matches(l) }

// inBlock reports whether an address is in a block and not in its exceptions. An invalid block
// contains no addresses.
func inBlock(a netip.Addr, b *networkingv1.IPBlock) bool {
	block, err := netip.ParsePrefix(b.CIDR)
	if err != nil || !block.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(b.Except, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err != nil || p.Contains(a)
	})
}
