// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// endpoint is one address and port behind a service port.
type endpoint struct {
	addr                        netip.AddrPort
	ready, serving, terminating bool
	onNode                      bool
	zones, nodes                []string // hints
}

// endpointsOf returns the endpoints of one port in the slices of a family. Where slices
// overlap, as they may while a controller moves endpoints, the one that is ready counts.
func endpointsOf(list []*Slice, f ruleset.Family, p *port) []endpoint {
	found := map[netip.AddrPort]endpoint{}
	for _, s := range list {
		number := s.number(p)
		if number == 0 || s.family != f {
			continue
		}
		for i := range s.states {
			e := s.endpoint(i, number)
			if have, ok := found[e.addr]; !ok || !have.ready && (e.ready || !have.serving) {
				found[e.addr] = e
			}
		}
	}
	out := make([]endpoint, 0, len(found))
	for _, e := range found {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	return out
}

// fallback is an endpoint to use if none is ready.
func (e endpoint) fallback() bool { return e.serving && e.terminating }

func (e endpoint) near(n Node) bool { return slices.Contains(e.nodes, n.Name) }
func (e endpoint) zone(n Node) bool { return slices.Contains(e.zones, n.Zone) }

func (e endpoint) isReady() bool { return e.ready }

// usable returns those that are ready, or else those that still serve while they
// terminate.
func usable(list []endpoint) []endpoint {
	if ready := filter(list, endpoint.isReady); len(ready) > 0 {
		return ready
	}
	return filter(list, endpoint.fallback)
}

func filter(list []endpoint, keep func(endpoint) bool) []endpoint {
	out := make([]endpoint, 0, len(list)) // as a rule all of them are kept
	for _, e := range list {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// clusterEndpoints are those of the traffic policy Cluster. Hints are followed only
// if all that are ready have one and one of them is for this node or its zone:
// otherwise they are being changed, or there is nobody here.
func clusterEndpoints(list []endpoint, n Node) []endpoint {
	ready := filter(list, endpoint.isReady)
	if len(ready) == 0 {
		return usable(list)
	}
	every := func(has func(endpoint) bool) bool {
		return !slices.ContainsFunc(ready, func(e endpoint) bool { return !has(e) })
	}
	if every(func(e endpoint) bool { return len(e.nodes) > 0 }) {
		if here := filter(ready, func(e endpoint) bool { return e.near(n) }); len(here) > 0 {
			return here
		}
	}
	if every(func(e endpoint) bool { return len(e.zones) > 0 }) {
		if here := filter(ready, func(e endpoint) bool { return e.zone(n) }); len(here) > 0 {
			return here
		}
	}
	return ready
}

// localEndpoints are those of the traffic policy Local.
func localEndpoints(list []endpoint) []endpoint {
	return usable(filter(list, func(e endpoint) bool { return e.onNode }))
}

func pack(list []endpoint) ruleset.Endpoints {
	out := make([]netip.AddrPort, 0, len(list))
	for _, e := range list {
		out = append(out, e.addr)
	}
	return ruleset.Pack(out)
}

// onNode are the addresses of those endpoints that are on this node.
func onNode(lists ...[]endpoint) []netip.Addr {
	var out []netip.Addr
	for _, list := range lists {
		for _, e := range list {
			if e.onNode && !slices.Contains(out, e.addr.Addr()) {
				out = append(out, e.addr.Addr())
			}
		}
	}
	return out
}
