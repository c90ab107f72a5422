// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclaims decides which names, addresses and pod ranges a node may claim.
//
// A kubelet writes its own Node: its name, its addresses and, before the cluster assigns one, its
// pod range. Other components rely on these data: they route pods' packets, connect to kubelets and
// sign certificates. But a node may lie. This package has the rules that all of these components
// apply:
//
//   - Each address and each pod range has one owner, the oldest node that claims it. A node cannot
//     choose its age, because the API server writes creation times.
//   - A pod range must be inside the cluster's own ranges, if these are known.
//   - Names and addresses of the API server, of services and of the machine itself belong to no
//     node.
//
// All functions are pure. The package does not watch nodes and does not reject requests: its callers
// do.
package nodeclaims

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/outbound"
)

// Claim holds the pod ranges and addresses that a node claims.
type Claim struct {
	Name    string
	UID     types.UID
	Created time.Time
	// PodRanges are the node's pod ranges, masked.
	PodRanges []netip.Prefix
	// Addresses are the node's internal addresses, in the order of its status.
	Addresses []netip.Addr
}

// Of returns the claims of a Node. It leaves out ranges and addresses that cannot be parsed.
func Of(n *v1.Node) Claim {
	c := Claim{Name: n.Name, UID: n.UID, Created: n.CreationTimestamp.Time}
	ranges := n.Spec.PodCIDRs
	if len(ranges) == 0 && n.Spec.PodCIDR != "" {
		ranges = []string{n.Spec.PodCIDR}
	}
	for _, text := range ranges {
		if p, err := netip.ParsePrefix(text); err == nil {
			c.PodRanges = append(c.PodRanges, p.Masked())
		}
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == v1.NodeInternalIP {
			c.Addresses = append(c.Addresses, ip.Unmap())
		}
	}
	return c
}

// Older orders claims by age. Creation times have a resolution of one second. Nodes of the same
// second are ordered by UID, which the API server chooses.
func Older(a, b Claim) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
}

// Refusal is a claim that was refused.
type Refusal struct {
	Node  string
	What  netip.Prefix
	Cause string
}

// String returns the refusal for a log.
func (r Refusal) String() string { return fmt.Sprintf("%s of node %s: %s", r.What, r.Node, r.Cause) }

// Settle returns the claims, oldest node first, each with only the ranges and addresses that the
// node owns. It also returns the refused claims. Pod ranges must be inside one of within, unless
// within is empty.
func Settle(claims []Claim, within []netip.Prefix) ([]Claim, []Refusal) {
	claims = slices.SortedFunc(slices.Values(claims), Older)
	var owned disjoint
	var refused []Refusal
	for i, c := range claims {
		settle := func(p netip.Prefix, cause string) bool {
			if cause == "" && !owned.add(p) {
				cause = "an older node owns it, or a part of it"
			}
			if cause != "" {
				refused = append(refused, Refusal{Node: c.Name, What: p, Cause: cause})
			}
			return cause == ""
		}
		claims[i].Addresses, claims[i].PodRanges = nil, nil
		for _, a := range c.Addresses {
			if slices.Contains(claims[i].Addresses, a) {
				continue
			}
			if settle(netip.PrefixFrom(a, a.BitLen()), special(a)) {
				claims[i].Addresses = append(claims[i].Addresses, a)
			}
		}
		for _, p := range c.PodRanges {
			if settle(p, outside(p, within)) {
				claims[i].PodRanges = append(claims[i].PodRanges, p)
			}
		}
	}
	return claims, refused
}

// outside returns why p cannot be a pod range; "" if it can.
func outside(p netip.Prefix, within []netip.Prefix) string {
	if p.Addr().Is4In6() || slices.ContainsFunc(outbound.SpecialRanges(), p.Overlaps) {
		return "it contains addresses that pods cannot have"
	}
	inside := func(whole netip.Prefix) bool { return whole.Bits() <= p.Bits() && whole.Contains(p.Addr()) }
	if len(within) > 0 && !slices.ContainsFunc(within, inside) {
		return "it is not inside the cluster's pod ranges"
	}
	return ""
}

// disjoint is a sorted set of prefixes that do not overlap.
type disjoint []netip.Prefix

// add adds p and reports true, unless p overlaps a prefix in the set.
func (d *disjoint) add(p netip.Prefix) bool {
	at, found := slices.BinarySearchFunc(*d, p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	// Of two overlapping prefixes one contains the other, so only the neighbours can overlap p.
	if found || at > 0 && (*d)[at-1].Overlaps(p) || at < len(*d) && (*d)[at].Overlaps(p) {
		return false
	}
	*d = slices.Insert(*d, at, p)
	return true
}
