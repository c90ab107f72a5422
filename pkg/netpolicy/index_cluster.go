// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"maps"
	"slices"
)

// SetClusterPolicy adds or updates a ClusterNetworkPolicy. If p is nil, it deletes the policy.
func (x *Index) SetClusterPolicy(name string, p *clusterPolicy) {
	for t := range x.tiers {
		x.tiers[t] = slices.DeleteFunc(x.tiers[t], func(old *clusterPolicy) bool { return old.name == name })
	}
	if p != nil {
		list := append(x.tiers[p.tier], p)
		slices.SortFunc(list, compareClusterPolicies)
		x.tiers[p.tier] = list
	}
	for _, pods := range x.pods {
		for _, pod := range pods {
			if pod.Local {
				x.undecided[pod.Name] = true
			}
		}
	}
}

// SetNode adds or updates a node. If n is nil, it deletes the node.
func (x *Index) SetNode(name string, n *Node) {
	old := x.nodes[name]
	if old != nil && n != nil && maps.Equal(old.Labels, n.Labels) && slices.Equal(old.IPs, n.IPs) {
		return
	}
	for _, s := range x.sets {
		x.contributeNode(s, old, -1)
		x.contributeNode(s, n, 1)
	}
	delete(x.nodes, name)
	if n != nil {
		x.nodes[name] = n
	}
}

// contributeNode adds a number, the argument by, to the counts of the node's addresses in a set, if
// the set's selector matches the node.
func (x *Index) contributeNode(s *set, n *Node, by int) {
	if n != nil && s.kind == nodesOf && s.nodes.Matches(n.Labels) {
		x.count(s, s.ofNode(n), by)
	}
}

// clusterTerms returns the terms (conditions on connections, with verdicts) of those policies of a
// tier whose subject matches a pod, in the order of precedence.
func (x *Index) clusterTerms(t tier, p *Pod, d Direction) []term {
	var out []term
	for _, cp := range x.tiers[t] {
		if cp.subjects.matches(p, x.namespaces[p.Name.Namespace]) {
			out = append(out, cp.terms[d]...)
		}
	}
	return out
}
