// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// oneOf draws an index of a list of n elements.
func (w world) oneOf(what string, n int) int { return rapid.IntRange(0, n-1).Draw(w.T, what) }

func (w world) node() *Node {
	n := &Node{Name: rapid.SampledFrom([]string{"here", "there"}).Draw(w.T, "node"), Labels: w.labels()}
	addresses := map[string][]string{"here": {"192.0.2.1", "2001:db8::1"}, "there": {"192.0.2.2", "2001:db8::2"}}
	for _, a := range addresses[n.Name] {
		n.IPs = append(n.IPs, netip.MustParseAddr(a))
	}
	return n
}

// broken is an invalid selector. The API server accepts it in a custom resource, because
// definitions of custom resources do not validate selectors.
var broken = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}

func (w world) clusterPeer(d Direction) policyv1alpha2.ClusterNetworkPolicyEgressPeer {
	var p policyv1alpha2.ClusterNetworkPolicyEgressPeer
	kinds := 12
	if d == Egress {
		kinds = 24
	}
	switch k := w.oneOf("peer", kinds); {
	case k < 5:
		p.Namespaces = w.selector()
	case k < 10:
		p.Pods = &policyv1alpha2.NamespacedPod{NamespaceSelector: *w.selector(), PodSelector: *w.selector()}
	case k == 10:
		p.Namespaces = &broken
	case k == 11: // sets no known field, like an object of a later API version
	case k < 17:
		p.Nodes = w.selector()
	case k < 22:
		p.Networks = rapid.SliceOfNDistinct(rapid.SampledFrom([]policyv1alpha2.CIDR{
			"10.0.0.0/29", "10.0.0.8/30", "0.0.0.0/0", "192.0.2.1/32", "fd00::/125", "::/0",
		}), 1, 3, rapid.ID).Draw(w.T, "networks")
	case k == 22:
		p.DomainNames = []policyv1alpha2.DomainName{"example.com"}
	default:
		p.Networks = []policyv1alpha2.CIDR{"10.0.0.0"}
	}
	return p
}

func (w world) clusterPort() *policyv1alpha2.Port {
	switch w.oneOf("port", 9) {
	case 0, 1:
		return nil
	case 2, 3, 4:
		return &policyv1alpha2.Port{Number: int32(rapid.IntRange(80, 82).Draw(w.T, "number"))}
	case 5, 6, 7:
		return &policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: 80,
			End: int32(rapid.IntRange(80, 82).Draw(w.T, "end"))}}
	}
	return &policyv1alpha2.Port{Range: &policyv1alpha2.PortRange{Start: 82, End: 80}}
}

func (w world) clusterProtocols() (out []policyv1alpha2.ClusterNetworkPolicyProtocol) {
	for range w.oneOf("protocols", 3) {
		var p policyv1alpha2.ClusterNetworkPolicyProtocol
		switch k := w.oneOf("protocol", 13); {
		case k < 3:
			p.TCP = &policyv1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: w.clusterPort()}
		case k < 6:
			p.UDP = &policyv1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: w.clusterPort()}
		case k < 9:
			p.SCTP = &policyv1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: w.clusterPort()}
		case k < 12:
			p.DestinationNamedPort = "web"
		}
		out = append(out, p)
	}
	return out
}

func (w world) clusterPolicy(name string) *policyv1alpha2.ClusterNetworkPolicy {
	p := &policyv1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Tier = rapid.SampledFrom([]policyv1alpha2.Tier{policyv1alpha2.AdminTier,
		policyv1alpha2.BaselineTier}).Draw(w.T, "tier")
	p.Spec.Priority = int32(rapid.IntRange(0, 2).Draw(w.T, "priority"))
	switch k := w.oneOf("subject", 12); {
	case k < 5:
		p.Spec.Subject.Namespaces = w.selector()
	case k < 10:
		p.Spec.Subject.Pods = &policyv1alpha2.NamespacedPod{NamespaceSelector: *w.selector(), PodSelector: *w.selector()}
	case k == 10:
		p.Spec.Subject.Namespaces = &broken
	}
	action := func() policyv1alpha2.ClusterNetworkPolicyRuleAction {
		return rapid.SampledFrom([]policyv1alpha2.ClusterNetworkPolicyRuleAction{"Accept", "Deny", "Pass",
			"Accept", "Deny", "Pass", "Log"}).Draw(w.T, "action")
	}
	for range w.oneOf("ingress", 3) {
		r := policyv1alpha2.ClusterNetworkPolicyIngressRule{Action: action(), Protocols: w.clusterProtocols()}
		for range w.oneOf("from", 3) {
			peer := w.clusterPeer(Ingress)
			r.From = append(r.From, policyv1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: peer.Namespaces, Pods: peer.Pods})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
	}
	for range w.oneOf("egress", 3) {
		r := policyv1alpha2.ClusterNetworkPolicyEgressRule{Action: action(), Protocols: w.clusterProtocols()}
		for range w.oneOf("to", 3) {
			r.To = append(r.To, w.clusterPeer(Egress))
		}
		p.Spec.Egress = append(p.Spec.Egress, r)
	}
	return p
}
