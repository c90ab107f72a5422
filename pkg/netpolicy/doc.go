// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netpolicy enforces NetworkPolicies and ClusterNetworkPolicies on one node. It follows
// policies, namespaces, pods and, if policies select them, nodes, and keeps an nftables table that
// drops packets which the policies of this node's pods do not allow.
//
//	caches → changed objects → Agent.round (one goroutine owns the state)
//	                               compile  what a policy means
//	                               Index    the sets and chains that follow from it
//	                               table    one transaction for each address family
//
// The first packet of a connection is looked up twice: by its source among the pods isolated for
// egress, and by its destination among the pods isolated for ingress. The lookup returns a chain,
// which has one rule for each allowed kind of connection and a drop at its end. A pod with rules of
// the Admin tier has a chain of these rules before that chain. A pod without NetworkPolicies has a
// chain of the Baseline tier instead.
//
// Chains, and sets of ports and address blocks, are named after their content and never change. If
// a policy changes, new chains are made and its pods are assigned to them. Sets of the pods that a
// selector matches are updated member by member. So a new or deleted pod costs only the sets that
// it belongs to, whatever the number of policies, and policies that select no pod of this node cost
// nothing.
//
// Where the API does not define the behaviour, this package behaves as follows:
//
//   - A new policy does not cut existing connections.
//   - Pods in their host's network are not isolated, and no selector matches them.
//   - A pod always reaches itself, and its node always reaches it. It reaches its node unless a
//     cluster policy denies that. Other nodes are treated like any address.
//   - A pod is protected from the moment at which the API server knows its address, which is when its
//     sandbox exists.
//
// Explain answers, from the same objects but by different code, what is allowed and why.
//
// The behaviour is defined by NetworkPolicySpec in the API reference of networking.k8s.io/v1, and
// by ClusterNetworkPolicySpec in the API reference of policy.networking.k8s.io/v1alpha2. Peers by
// domain name are not supported, and no status is written.
package netpolicy
