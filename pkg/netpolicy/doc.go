// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netpolicy enforces NetworkPolicies and ClusterNetworkPolicies on one node. It watches
// policies, namespaces, pods and, if policies select nodes, nodes. It maintains nftables tables that
// drop packets that the policies of this node's pods do not allow.
//
//	caches → changed objects → Agent.round (one goroutine owns the state)
//	                               compile  what a policy means
//	                               Index    the sets and chains that follow from it
//	                               table    one transaction for each address family
//
// The first packet of a connection is looked up twice: its source among the pods that are isolated
// for egress, and its destination among the pods that are isolated for ingress. Each lookup returns a
// chain. The chain has one rule for each allowed kind of connection, and drops all other packets. If
// the Admin tier has rules for the pod, a chain with these rules comes before that chain. A pod
// without NetworkPolicies has a chain of the Baseline tier instead.
//
// Chains, and sets of ports and address blocks, are named after a hash of their content and never
// change. If a policy changes, new chains are created and its pods are assigned to them. Sets of the
// pods that a selector matches are updated member by member. So a new or deleted pod costs only the
// sets to which it belongs, whatever the number of policies. Policies that select no pod of this node
// cost nothing.
//
// Where the API does not define the behaviour, this package behaves as follows:
//
//   - A new policy does not end existing connections.
//   - Pods in their host's network are not isolated, and no selector matches them.
//   - A pod can always reach itself, and its node can always reach it. It can reach its node unless a
//     ClusterNetworkPolicy denies that. Other nodes are treated like any address.
//   - A pod is protected from the moment at which the API server has its address, which is when its
//     sandbox exists.
//
// Explain computes from the same objects, but by different code, what is allowed and why.
//
// The behaviour is defined by NetworkPolicySpec in the API reference of networking.k8s.io/v1, and
// by ClusterNetworkPolicySpec in the API reference of policy.networking.k8s.io/v1alpha2. Peers by
// domain name are not supported, and no status is written.
package netpolicy
