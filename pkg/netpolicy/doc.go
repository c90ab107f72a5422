// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netpolicy enforces NetworkPolicies and ClusterNetworkPolicies on one node: it follows
// policies, namespaces, pods and, if policies name them, nodes, and keeps an nftables table that
// drops what the policies of this node's pods do not allow.
//
//	informers → dirty names → Agent (one goroutine owns the state)
//	                            compile   what a policy means
//	                            Index     sets and chains that follow from it
//	                            table     one transaction for each address family
//
// A packet that begins a connection is looked up by its source among the pods isolated for
// egress and by its destination among those isolated for ingress; what is found there is a chain
// with one rule for each way of being allowed, and a drop at its end. A pod with rules of the
// Admin tier has a chain of those before it, a pod without NetworkPolicies one of the Baseline
// tier in its place. Chains and the sets of ports and address blocks are named after their
// content and never change: a change of policy makes new ones and moves the pods over. The sets
// of pods that a selector means are kept member by member. So a pod that comes or goes costs the
// sets that it is in, whatever the number of policies, and policies that select no pod of this
// node cost nothing.
//
// What the API leaves open is decided so: connections that exist are not cut by a new
// policy; pods on their host's network are not isolated, and no selector means
// them; a pod reaches itself, its node reaches it, and it reaches its node unless a cluster policy denies
// that; a node that
// is another's is an address like any. A pod is guarded when its
// address is known to the API server, which is when its sandbox is there.
//
// Explain answers, from the same objects and in another way, what is allowed and why.
//
// Behaviour: NetworkPolicySpec in the API reference of networking.k8s.io/v1,
// ClusterNetworkPolicySpec in that of policy.networking.k8s.io/v1alpha2. Peers by domain names
// are not supported, and no status is written.
package netpolicy
