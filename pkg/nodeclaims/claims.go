// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclaims decides which names, addresses and pod ranges a node may have.
//
// A kubelet writes its own Node: its name, its addresses and, before the cluster assigns one, its
// pod range. Other components trust these data: they route the packets of pods, connect to kubelets
// and sign certificates. But a kubelet that an attacker controls may write false data. This package
// has the rules by which all these components decide what to trust:
//
//   - Each address and each pod range has one owner: the oldest node that claims it. A node cannot
//     choose its age, because the API server sets creation times.
//   - A pod range must be inside the cluster's pod ranges, if these are known.
//   - No node owns names and addresses of the API server, of services and of the machine itself.
//
// The functions have no side effects. The package neither watches nodes nor rejects requests; its
// callers do.
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

// Claim has the pod ranges and addresses that a node claims to own.
type Claim struct {
	Name    string
	UID     types.UID
	Created time.Time
	// PodRanges are the node's pod ranges. Their host bits are zero.
	PodRanges []netip.Prefix
	// Addresses are the node's internal addresses, in the order of its status.
	Addresses []netip.Addr
}

// Of returns the claims of a Node. It omits ranges and addresses that cannot be parsed.
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

// Older compares claims by the age of their nodes. The result is negative if a's node is older.
// Creation times have a resolution of one second. Nodes that were created in the same second are
// ordered by UID, which the API server chooses.
func Older(a, b Claim) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Name, b.Name))
}

// Refusal is a claimed address or pod range that the node does not own.
type Refusal struct {
	Node  string
	What  netip.Prefix
	Cause string
}

// String returns the refusal as text for a log.
func (r Refusal) String() string { return fmt.Sprintf("%s of node %s: %s", r.What, r.Node, r.Cause) }

// Settle returns the claims with only those ranges and addresses that their nodes own. The oldest
// node comes first. It also returns the claims that it has refused. Unless within is empty, a pod
// range must be inside one of the ranges in within.
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

// outside returns why p cannot be a pod range, or "" if it can.
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

// add adds p to the set and returns true. If p overlaps a prefix in the set, it returns false and
// does not add p.
func (d *disjoint) add(p netip.Prefix) bool {
	at, found := slices.BinarySearchFunc(*d, p, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	// Two prefixes overlap only if one contains the other, so only the neighbours of p in the order
	// can overlap p.
	if found || at > 0 && (*d)[at-1].Overlaps(p) || at < len(*d) && (*d)[at].Overlaps(p) {
		return false
	}
	*d = slices.Insert(*d, at, p)
	return true
}
