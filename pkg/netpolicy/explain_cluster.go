// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Decision is the rule of a ClusterNetworkPolicy that decides a flow (a connection).
type Decision struct {
	Policy string
	Tier   policyv1alpha2.Tier
	// Rule is the index of the rule among the rules of its direction, from 0. Name is the rule's name,
	// which may be empty.
	Rule   int
	Name   string
	Action policyv1alpha2.ClusterNetworkPolicyRuleAction
	// Problem says which part of the rule is invalid or not supported. It is nil if there is none. A
	// rule with a problem denies the flow.
	Problem error
}

func (d *Decision) allows() bool {
	return d.Action != policyv1alpha2.ClusterNetworkPolicyRuleActionDeny
}

// onOwnNode reports whether the other end has an address of the pod's node.
func (c *Cell) onOwnNode(p *Pod, other Party) bool {
	return p != nil && other.Pod == nil && slices.ContainsFunc(c.Nodes, func(n *Node) bool {
		return n.Name == p.Node && slices.Contains(n.IPs, other.Addr)
	})
}

// clusterSide sets the decisions of the Admin and the Baseline tier.
func (j matcher) clusterSide(s *Side, d Direction) {
	s.Admin = j.decide(policyv1alpha2.AdminTier, d)
	s.Baseline = j.decide(policyv1alpha2.BaselineTier, d)
}

// decide returns the first rule of a tier that matches the flow, or nil.
func (j matcher) decide(t policyv1alpha2.Tier, d Direction) *Decision {
	of, other := j.To.Pod, j.From
	if d == Egress {
		of, other = j.From.Pod, j.To
	}
	list := slices.DeleteFunc(slices.Clone(j.Cluster), func(p *policyv1alpha2.ClusterNetworkPolicy) bool {
		return p.Spec.Tier != t || !j.subject(&p.Spec.Subject, of)
	})
	slices.SortFunc(list, func(a, b *policyv1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range list {
		for i, r := range rulesOf(p, d) {
			decision := &Decision{Policy: p.Name, Tier: t, Rule: i, Name: r.name, Action: r.action, Problem: r.understood()}
			switch {
			case decision.Problem != nil && r.action == policyv1alpha2.ClusterNetworkPolicyRuleActionAccept:
				continue
			case decision.Problem != nil:
				decision.Action = policyv1alpha2.ClusterNetworkPolicyRuleActionDeny
				return decision
			case j.clusterRule(r, other):
				return decision
			}
		}
	}
	return nil
}

func (j matcher) subject(s *policyv1alpha2.ClusterNetworkPolicySubject, p *Pod) bool {
	switch {
	case p == nil || (s.Namespaces == nil) == (s.Pods == nil):
		return false
	case s.Namespaces != nil:
		return j.inNamespaces(s.Namespaces, p)
	}
	return j.namespacedPod(s.Pods, p)
}

func (j matcher) inNamespaces(s *metav1.LabelSelector, p *Pod) bool {
	return p != nil && matches(s, j.Namespaces[p.Name.Namespace])
}

func (j matcher) namespacedPod(s *policyv1alpha2.NamespacedPod, p *Pod) bool {
	return j.inNamespaces(&s.NamespaceSelector, p) && matches(&s.PodSelector, p.Labels)
}

func (j matcher) clusterRule(r clusterRule, other Party) bool {
	return slices.ContainsFunc(r.peers, func(p policyv1alpha2.ClusterNetworkPolicyEgressPeer) bool {
		return j.clusterPeer(p, other)
	}) &&
		(len(r.protocols) == 0 || slices.ContainsFunc(r.protocols, j.clusterProtocol))
}

func (j matcher) clusterPeer(p policyv1alpha2.ClusterNetworkPolicyEgressPeer, other Party) bool {
	switch {
	case p.Namespaces != nil:
		return j.inNamespaces(p.Namespaces, other.Pod)
	case p.Pods != nil:
		return j.namespacedPod(p.Pods, other.Pod)
	case p.Nodes != nil:
		return slices.ContainsFunc(j.Nodes, func(n *Node) bool {
			return matches(p.Nodes, n.Labels) &&
				slices.Contains(n.IPs, other.Addr)
		})
	}
	return slices.ContainsFunc(p.Networks, func(c policyv1alpha2.CIDR) bool {
		block, err := netip.ParsePrefix(string(c))
		return err == nil && block.Contains(other.Addr)
	})
}

func (j matcher) clusterProtocol(p policyv1alpha2.ClusterNetworkPolicyProtocol) bool {
	if name := p.DestinationNamedPort; name != "" {
		return j.To.Pod != nil && slices.Contains(j.To.Pod.Ports, Port{name, j.Protocol, j.Port})
	}
	number, port := destinationPort(p)
	switch {
	case number != j.Protocol:
		return false
	case port == nil:
		return true
	case port.Range != nil:
		return port.Range.Start <= int32(j.Port) && int32(j.Port) <= port.Range.End
	}
	return port.Number == int32(j.Port)
}
