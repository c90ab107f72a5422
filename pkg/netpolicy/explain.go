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
)

// Party is one end of a connection: a pod, or an address that is no pod's.
type Party struct {
	Pod  *Pod
	Addr netip.Addr
}

// Flow is a connection to be judged.
type Flow struct {
	From, To Party
	Protocol uint8
	Port     uint16
}

// Side is what one direction says of a flow.
type Side struct {
	// Isolating are the policies that isolate the pod in this direction; without any,
	// everything is allowed. Allowing are those of them that allow the flow.
	Isolating, Allowing []types.NamespacedName
}

// Allowed tells whether the flow passes this side.
func (s Side) Allowed() bool { return len(s.Isolating) == 0 || len(s.Allowing) > 0 }

// Verdict is what policies say of a flow.
type Verdict struct{ Egress, Ingress Side }

// Allowed tells whether the connection is let through.
func (v Verdict) Allowed() bool { return v.Egress.Allowed() && v.Ingress.Allowed() }

// Explain judges a flow by all policies of a cluster, with the labels of its namespaces. It looks at
// each policy, and is for questions, not for packets.
func Explain(f Flow, policies []*networkingv1.NetworkPolicy, namespaces map[string]labels.Set) Verdict {
	if f.From.Pod != nil && f.To.Pod != nil && f.From.Pod.Name == f.To.Pod.Name {
		return Verdict{} // a pod reaches itself
	}
	j := judge{Flow: f, namespaces: namespaces}
	var v Verdict
	for _, np := range policies {
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

type judge struct {
	Flow
	namespaces map[string]labels.Set
}

func selects(np *networkingv1.NetworkPolicy, p *Pod) bool {
	return p != nil && p.Name.Namespace == np.Namespace && labelSelector(&np.Spec.PodSelector).Matches(p.Labels)
}

func (judge) side(s *Side, np *networkingv1.NetworkPolicy, allowed bool) {
	name := types.NamespacedName{Namespace: np.Namespace, Name: np.Name}
	s.Isolating = append(s.Isolating, name)
	if allowed {
		s.Allowing = append(s.Allowing, name)
	}
}

func (j judge) rule(np *networkingv1.NetworkPolicy, other Party, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) bool {
	port := len(ports) == 0 || slices.ContainsFunc(ports, j.port)
	return port && (len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return j.peer(np, other, p) }))
}

func (j judge) port(p networkingv1.NetworkPolicyPort) bool {
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

func (j judge) peer(np *networkingv1.NetworkPolicy, other Party, p networkingv1.NetworkPolicyPeer) bool {
	if p.IPBlock != nil {
		return inBlock(other.Addr, p.IPBlock)
	}
	if other.Pod == nil {
		return false
	}
	where := other.Pod.Name.Namespace
	if p.NamespaceSelector == nil && where != np.Namespace || p.NamespaceSelector != nil && !matches(p.NamespaceSelector, j.namespaces[where]) {
		return false
	}
	return p.PodSelector == nil || matches(p.PodSelector, other.Pod.Labels)
}

func matches(s *metav1.LabelSelector, l labels.Set) bool { return labelSelector(s).Matches(l) }

// inBlock tells whether an address is in a block. What does not parse has no addresses.
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
