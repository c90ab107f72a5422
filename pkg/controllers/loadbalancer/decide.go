// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// wants reports whether this controller assigns addresses to a Service.
func wants(s *v1.Service) bool {
	return s.DeletionTimestamp == nil && s.Spec.Type == v1.ServiceTypeLoadBalancer &&
		(s.Spec.LoadBalancerClass == nil || *s.Spec.LoadBalancerClass == service.LoadBalancerClass)
}

// statusAddresses returns the addresses in a Service's status.
func statusAddresses(s *v1.Service) []netip.Addr {
	var out []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// allocate returns the addresses for a Service, one for each of its address families. If the
// Service requests an address of the family, no other address is used. Otherwise it is the present
// address of the Service or, if it has none, the lowest free address. short are the families for
// which no address is available.
func allocate(s *v1.Service, ranges []controller.AddressRange, taken map[netip.Addr]bool) (out []netip.Addr,
	short []v1.IPFamily) {
	have := statusAddresses(s)
	asked, _ := netip.ParseAddr(s.Spec.LoadBalancerIP)
	for _, family := range s.Spec.IPFamilies {
		usable := func(a netip.Addr) bool {
			return a.Is6() == (family == v1.IPv6Protocol) && !taken[a] &&
				slices.ContainsFunc(ranges, func(r controller.AddressRange) bool { return r.Contains(a) })
		}
		of := func(a netip.Addr) bool { return a.IsValid() && a.Is6() == (family == v1.IPv6Protocol) }
		var got netip.Addr
		if of(asked) {
			if usable(asked) {
				got = asked
			}
		} else if i := slices.IndexFunc(have, usable); i >= 0 {
			got = have[i]
		} else {
			got = lowest(ranges, family, usable)
		}
		if !got.IsValid() {
			short = append(short, family)
			continue
		}
		out = append(out, got)
	}
	return out, short
}

// lowest returns the lowest address in the ranges for which usable returns true. The search skips
// only addresses that are taken, so it is short.
func lowest(ranges []controller.AddressRange, family v1.IPFamily, usable func(netip.Addr) bool) netip.Addr {
	for _, r := range ranges {
		if r.First.Is6() != (family == v1.IPv6Protocol) {
			continue
		}
		for a := r.First; a.IsValid() && r.Contains(a); a = a.Next() {
			if usable(a) {
				return a
			}
		}
	}
	return netip.Addr{}
}

// elect returns the node that should announce a Service's addresses, or "" if no node can. The
// present node is kept if it can. Otherwise the node with the highest hash of node and Service is
// chosen, so that Services are spread over the nodes, and a new or deleted node does not move other
// Services.
func elect(s *v1.Service, nodes []*v1.Node, slicesOf []*discoveryv1.EndpointSlice) string {
	best, bestScore := "", [sha256.Size]byte{}
	for _, n := range nodes {
		if !serves(n) || s.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal &&
			!hasEndpoint(n.Name, slicesOf) {
			continue
		}
		if s.Annotations[service.AnnouncedBy] == n.Name {
			return n.Name
		}
		score := sha256.Sum256([]byte(n.Name + "/" + s.Namespace + "/" + s.Name))
		if best == "" || bytes.Compare(score[:], bestScore[:]) > 0 {
			best, bestScore = n.Name, score
		}
	}
	return best
}

// serves reports whether a node may get external traffic: it is ready, not being deleted, and not
// excluded from load balancers.
func serves(n *v1.Node) bool {
	if _, excluded := n.Labels[v1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions,
		func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

func hasEndpoint(node string, list []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(list, func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
			return e.NodeName != nil && *e.NodeName == node && (e.Conditions.Ready == nil || *e.Conditions.Ready)
		})
	})
}

func compareServices(a, b *v1.Service) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
