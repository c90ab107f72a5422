// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// endpoint is one address and port of an endpoint of a service's port.
type endpoint struct {
	addr                        netip.AddrPort
	ready, serving, terminating bool
	onNode                      bool
	zones, nodes                []string // zones and nodes in the topology hints
}

// endpointsOf returns the endpoints of one port in the slices of an IP family. While a controller
// moves an endpoint, two slices can contain it. Then the endpoint counts as ready if either says
// so.
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

// fallback reports whether the endpoint can be used if no endpoint is ready.
func (e endpoint) fallback() bool { return e.serving && e.terminating }

func (e endpoint) near(n Node) bool { return slices.Contains(e.nodes, n.Name) }
func (e endpoint) zone(n Node) bool { return slices.Contains(e.zones, n.Zone) }

func (e endpoint) isReady() bool { return e.ready }

// usable returns the ready endpoints. If none is ready, it returns the terminating endpoints that
// still serve.
func usable(list []endpoint) []endpoint {
	if ready := filter(list, endpoint.isReady); len(ready) > 0 {
		return ready
	}
	return filter(list, endpoint.fallback)
}

func filter(list []endpoint, keep func(endpoint) bool) []endpoint {
	out := make([]endpoint, 0, len(list)) // usually, all endpoints are kept
	for _, e := range list {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// clusterEndpoints returns the endpoints for the traffic policy Cluster. It uses hints only if all
// ready endpoints have hints and at least one endpoint is meant for this node or its zone.
// Otherwise a controller is just changing the hints, or no endpoint is meant for this zone.
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

// localEndpoints returns the endpoints for the traffic policy Local.
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

// onNode returns the addresses of those endpoints that are on this node.
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
