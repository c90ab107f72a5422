// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// tier is the tier of a ClusterNetworkPolicy. The Admin tier comes before NetworkPolicies. The
// Baseline tier comes after them, and applies only to pods that no NetworkPolicy isolates.
type tier int

const (
	adminTier tier = iota
	baselineTier
)

func tierOf(cnp *policyv1alpha2.ClusterNetworkPolicy) tier {
	if cnp.Spec.Tier == policyv1alpha2.BaselineTier {
		return baselineTier
	}
	return adminTier
}

// clusterPolicy is a compiled ClusterNetworkPolicy.
type clusterPolicy struct {
	name     string
	tier     tier
	priority int32
	subjects selector
	terms    [2][]term
	nodes    bool // true if a rule's peer selects nodes
}

// compareClusterPolicies orders the policies of a tier by precedence. The API does not define the
// order of policies with the same priority; they are ordered by name.
func compareClusterPolicies(a, b *clusterPolicy) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.name, b.name))
}

// clusterRule is an ingress or egress rule of a ClusterNetworkPolicy.
type clusterRule struct {
	name      string
	action    policyv1alpha2.ClusterNetworkPolicyRuleAction
	peers     []policyv1alpha2.ClusterNetworkPolicyEgressPeer
	protocols []policyv1alpha2.ClusterNetworkPolicyProtocol
}

// rulesOf returns the rules of a policy for a direction.
func rulesOf(cnp *policyv1alpha2.ClusterNetworkPolicy, d Direction) []clusterRule {
	var out []clusterRule
	if d == Egress {
		for _, r := range cnp.Spec.Egress {
			out = append(out, clusterRule{r.Name, r.Action, r.To, r.Protocols})
		}
		return out
	}
	for _, r := range cnp.Spec.Ingress {
		c := clusterRule{name: r.Name, action: r.Action, protocols: r.Protocols}
		for _, p := range r.From {
			c.peers = append(c.peers, policyv1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		out = append(out, c)
	}
	return out
}

// compileCluster compiles a policy. If some parts of the policy are invalid or not supported, it
// returns the compiled policy together with an error that describes these parts.
func compileCluster(cnp *policyv1alpha2.ClusterNetworkPolicy) (*clusterPolicy, error) {
	p := &clusterPolicy{name: cnp.Name, tier: tierOf(cnp), priority: cnp.Spec.Priority}
	subjects, err := subjectsOf(&cnp.Spec.Subject)
	p.subjects = subjects
	errs := []error{err}
	for _, d := range []Direction{Ingress, Egress} {
		for i, r := range rulesOf(cnp, d) {
			terms, err := p.compile(d, r)
			if err != nil {
				errs = append(errs, fmt.Errorf("%v rule %d: %w", d, i, err))
			}
			for _, t := range terms {
				p.nodes = p.nodes || t.peers.kind == nodesOf
			}
			p.terms[d] = append(p.terms[d], terms...)
		}
	}
	return p, errors.Join(errs...)
}

// compile returns the terms of a rule: conditions on connections, each with a verdict. A rule with
// invalid or unsupported parts fails closed, as the API requires: an Accept rule accepts nothing,
// and a Deny or Pass rule denies everything.
func (p *clusterPolicy) compile(d Direction, r clusterRule) ([]term, error) {
	if err := r.understood(); err != nil {
		if r.action == policyv1alpha2.ClusterNetworkPolicyRuleActionAccept {
			return nil, err
		}
		return []term{{verdict: deny}}, err
	}
	v := map[policyv1alpha2.ClusterNetworkPolicyRuleAction]verdict{
		policyv1alpha2.ClusterNetworkPolicyRuleActionAccept: allow,
		policyv1alpha2.ClusterNetworkPolicyRuleActionDeny:   deny,
		policyv1alpha2.ClusterNetworkPolicyRuleActionPass:   pass,
	}[r.action]
	if v == pass && p.tier == baselineTier {
		v = allow // no policy comes after the Baseline tier, so Pass means allow
	}
	numbers, names := splitProtocols(r.protocols)
	var out []term
	for i := range r.peers {
		peer := clusterPeer(&r.peers[i])
		if len(r.protocols) == 0 {
			out = append(out, term{peers: peer, verdict: v})
		}
		if len(numbers) > 0 {
			out = append(out, term{peers: peer, ports: portSet(numbers), verdict: v})
		}
		for _, n := range names {
			whose := p.subjects
			if d == Egress {
				whose = destinations(peer)
			}
			out = append(out, term{peers: peer, named: namedSet(whose, n), verdict: v})
		}
	}
	return out, nil
}

func subjectsOf(s *policyv1alpha2.ClusterNetworkPolicySubject) (selector, error) {
	switch {
	case s.Namespaces != nil && s.Pods == nil:
		return selectorOf("", s.Namespaces, nil), valid(s.Namespaces)
	case s.Pods != nil && s.Namespaces == nil:
		return selectorOf("", &s.Pods.NamespaceSelector, &s.Pods.PodSelector),
			valid(&s.Pods.NamespaceSelector, &s.Pods.PodSelector)
	}
	nobody := selectorOf("", &metav1.LabelSelector{}, nil)
	nobody.pods, nobody.key = labels.Nothing(), "nobody"
	return nobody, fmt.Errorf("subject: %w", errNotOne)
}

// clusterPeer returns the set of addresses of a valid peer.
func clusterPeer(p *policyv1alpha2.ClusterNetworkPolicyEgressPeer) setDef {
	switch {
	case p.Namespaces != nil:
		return podSet(selectorOf("", p.Namespaces, nil))
	case p.Pods != nil:
		return podSet(selectorOf("", &p.Pods.NamespaceSelector, &p.Pods.PodSelector))
	case p.Nodes != nil:
		return nodeSet(labelSelector(p.Nodes))
	}
	var list []netip.Prefix
	for _, n := range p.Networks {
		list = append(list, netip.MustParsePrefix(string(n)))
	}
	return networkSet(list)
}

// splitProtocols returns the numbered and the named ports of a valid rule.
func splitProtocols(list []policyv1alpha2.ClusterNetworkPolicyProtocol) (numbers []portRange, names []portName) {
	for _, p := range list {
		if p.DestinationNamedPort != "" {
			names = append(names, portName{name: p.DestinationNamedPort})
			continue
		}
		number, port := destinationPort(p)
		r := portRange{number, 0, 65535}
		switch {
		case port == nil:
		case port.Range != nil:
			r.from, r.to = uint16(port.Range.Start), uint16(port.Range.End)
		default:
			r.from, r.to = uint16(port.Number), uint16(port.Number)
		}
		numbers = append(numbers, r)
	}
	return join(numbers), names
}

// destinationPort returns the protocol of an entry, or 0 if it names none. It returns the entry's
// port, or nil if the entry applies to all ports.
func destinationPort(p policyv1alpha2.ClusterNetworkPolicyProtocol) (uint8, *policyv1alpha2.Port) {
	switch {
	case p.TCP != nil:
		return protocolTCP, p.TCP.DestinationPort
	case p.UDP != nil:
		return protocolUDP, p.UDP.DestinationPort
	case p.SCTP != nil:
		return protocolSCTP, p.SCTP.DestinationPort
	}
	return 0, nil
}

var (
	errNotOne  = errors.New("must have exactly one field that is known")
	errDomains = errors.New("domainNames are not supported")
	errAction  = errors.New("must be Accept, Deny or Pass")
	errPort    = errors.New("port: must be a number or a range from a lower to a higher one")
)

// understood returns an error if a part of a rule is invalid or not supported. The API server
// validates most parts, but not selectors. And the cluster may have the definition of another
// version of the API.
func (r clusterRule) understood() error {
	switch r.action {
	case policyv1alpha2.ClusterNetworkPolicyRuleActionAccept, policyv1alpha2.ClusterNetworkPolicyRuleActionDeny,
		policyv1alpha2.ClusterNetworkPolicyRuleActionPass:
	default:
		return fmt.Errorf("action %q: %w", r.action, errAction)
	}
	if len(r.peers) == 0 {
		return fmt.Errorf("peers: %w", errNotOne)
	}
	var errs []error
	for i := range r.peers {
		errs = append(errs, understoodPeer(&r.peers[i]))
	}
	for _, p := range r.protocols {
		errs = append(errs, understoodProtocol(p))
	}
	return errors.Join(errs...)
}

func understoodPeer(p *policyv1alpha2.ClusterNetworkPolicyEgressPeer) error {
	if len(p.DomainNames) > 0 {
		return fmt.Errorf("peer: %w", errDomains)
	}
	fields := 0
	for _, there := range []bool{p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, len(p.Networks) > 0} {
		if there {
			fields++
		}
	}
	if fields != 1 {
		return fmt.Errorf("peer: %w", errNotOne)
	}
	for _, n := range p.Networks {
		if _, err := netip.ParsePrefix(string(n)); err != nil {
			return fmt.Errorf("peer: %w", err)
		}
	}
	if p.Pods != nil {
		return valid(&p.Pods.NamespaceSelector, &p.Pods.PodSelector)
	}
	return valid(p.Namespaces, p.Nodes)
}

func understoodProtocol(p policyv1alpha2.ClusterNetworkPolicyProtocol) error {
	number, port := destinationPort(p)
	if (number == 0) == (p.DestinationNamedPort == "") {
		return fmt.Errorf("protocol: %w", errNotOne)
	}
	inRange := func(n int32) bool { return n > 0 && n < 1<<16 }
	if port == nil || port.Range == nil && inRange(port.Number) {
		return nil
	}
	if r := port.Range; port.Number == 0 && r != nil && inRange(r.Start) && inRange(r.End) && r.Start <= r.End {
		return nil
	}
	return fmt.Errorf("protocol: %w", errPort)
}

// valid returns an error if a selector is invalid. It skips selectors that are nil.
func valid(list ...*metav1.LabelSelector) error {
	var errs []error
	for _, s := range list {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, fmt.Errorf("selector: %w", err))
		}
	}
	return errors.Join(errs...)
}
