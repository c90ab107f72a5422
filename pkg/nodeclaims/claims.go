// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclaims decides what a node may say of itself.
//
// A Node is written by its own kubelet: its name, its addresses and, before the cluster gives it
// one, its pod range. Other components act on these: they route pods' packets, connect to kubelets
// and sign certificates. A node may lie. This package has the rules that all of these components
// apply:
//
//   - Each address and each pod range has one owner, the oldest node that claims it. A node cannot
//     choose its age: the API server writes creation times.
//   - A pod range is inside the cluster's own ranges, where these are known.
//   - Names and addresses that lead to the API server, to services or to the machine itself belong
//     to no node.
//
// Everything here is a pure function. The package does not watch nodes and does not reject
// requests: its callers do.
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

// Claim is what a node claims.
type Claim struct {
	Name    string
	UID     types.UID
	Created time.Time
	// PodRanges are the node's pod ranges, masked.
	PodRanges []netip.Prefix
	// Addresses are the node's internal addresses, in the order of its status.
	Addresses []netip.Addr
}

// Of returns what a Node claims. It leaves out what cannot be parsed.
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

// Older orders claims by age. Creation times are in whole seconds; of two nodes of the same second
// the UID decides, which the API server chooses.
func Older(a, b Claim) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
}

// Refusal is a claim that is not a node's.
type Refusal struct {
	Node  string
	What  netip.Prefix
	Cause string
}

// String returns the refusal for a log.
func (r Refusal) String() string { return fmt.Sprintf("%s of node %s: %s", r.What, r.Node, r.Cause) }

// Settle returns each claim with what the node owns of it, the oldest first, and what was refused.
// Pod ranges have to be inside one of within, unless within is empty.
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

// outside returns why a pod range cannot be one; "" if it can.
func outside(p netip.Prefix, within []netip.Prefix) string {
	if p.Addr().Is4In6() || slices.ContainsFunc(outbound.Special(), p.Overlaps) {
		return "it holds addresses that are no pod's"
	}
	inside := func(whole netip.Prefix) bool { return whole.Bits() <= p.Bits() && whole.Contains(p.Addr()) }
	if len(within) > 0 && !slices.ContainsFunc(within, inside) {
		return "it is not inside the cluster's pod ranges"
	}
	return ""
}

// disjoint is a set of prefixes that do not overlap, in order.
type disjoint []netip.Prefix

// add adds p, unless it overlaps with one that is there.
func (d *disjoint) add(p netip.Prefix) bool {
	at, found := slices.BinarySearchFunc(*d, p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	// Prefixes that overlap contain each other: only the neighbours can.
	if found || at > 0 && (*d)[at-1].Overlaps(p) || at < len(*d) && (*d)[at].Overlaps(p) {
		return false
	}
	*d = slices.Insert(*d, at, p)
	return true
}
