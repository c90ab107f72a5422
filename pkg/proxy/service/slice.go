// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

// Slice contains the parts of an EndpointSlice that the proxy needs. The slices of a cluster can
// have hundreds of thousands of endpoints in all, so their addresses are packed. A Slice is
// immutable.
type Slice struct {
	Service types.NamespacedName
	name    string // name of the EndpointSlice
	family  ruleset.Family
	ports   []port   // ports of the slice; their node ports are 0
	addrs   string   // the addresses as bytes, one after the other
	states  []state  // one for each address
	hints   []*hints // hints of each endpoint, or nil entries; the list is nil if no endpoint has hints
}

// state contains the conditions of an endpoint, and whether it is on this node.
type state uint8

const (
	ready state = 1 << iota
	serving
	terminating
	onThisNode
)

// hints are the zones and nodes for which an endpoint is meant.
type hints struct{ zones, nodes []string }

// NewSlice returns the parts of an EndpointSlice that the proxy needs. It returns nil if the proxy
// does not need the slice: it belongs to no service or to a headless service, or the type of its
// addresses is not supported.
func NewSlice(s *discoveryv1.EndpointSlice, node string) *Slice {
	f, name := familyOf(s.AddressType), s.Labels[discoveryv1.LabelServiceName]
	if _, headless := s.Labels[corev1.IsHeadlessService]; headless || f == 0 || name == "" {
		return nil
	}
	out := &Slice{Service: types.NamespacedName{Namespace: shared(s.Namespace), Name: name}, name: s.Name,
		family: f, states: make([]state, 0, len(s.Endpoints))}
	for _, p := range s.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if number := protocolOf(protocol); number != 0 && p.Port != nil {
			out.ports = append(out.ports, port{name: shared(name), protocol: number, port: uint16(*p.Port)})
		}
	}
	addrs := make([]byte, 0, len(s.Endpoints)*f.Size())
	for i := range s.Endpoints {
		addrs = out.add(addrs, &s.Endpoints[i], node)
	}
	out.addrs = string(addrs)
	return out
}

// Key returns the EndpointSlice's name.
func (s *Slice) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Service.Namespace, Name: s.name}
}

func familyOf(t discoveryv1.AddressType) ruleset.Family {
	switch t {
	case discoveryv1.AddressTypeIPv4:
		return ruleset.IPv4
	case discoveryv1.AddressTypeIPv6:
		return ruleset.IPv6
	}
	return 0
}

// add records an endpoint and appends its address to addrs. It skips an endpoint whose address is
// invalid.
func (s *Slice) add(addrs []byte, e *discoveryv1.Endpoint, node string) []byte {
	if len(e.Addresses) == 0 {
		return addrs
	}
	// Use only the first address: the API defines all addresses of an endpoint as equivalent, and
	// no controller writes more than one.
	addr, err := netip.ParseAddr(e.Addresses[0])
	if err != nil || ruleset.Of(addr) != s.family || addr.Zone() != "" {
		return addrs
	}
	s.states = append(s.states, stateOf(e, node))
	if h := newHints(e.Hints); h != nil || s.hints != nil {
		s.hints = append(s.hints, make([]*hints, len(s.states)-1-len(s.hints))...)
		s.hints = append(s.hints, h)
	}
	return append(addrs, addr.AsSlice()...)
}

func stateOf(e *discoveryv1.Endpoint, node string) state {
	var out state
	set := func(s state, yes bool) {
		if yes {
			out |= s
		}
	}
	isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
	set(ready, isReady)
	set(serving, e.Conditions.Serving == nil && isReady || e.Conditions.Serving != nil && *e.Conditions.Serving)
	set(terminating, e.Conditions.Terminating != nil && *e.Conditions.Terminating)
	set(onThisNode, e.NodeName != nil && *e.NodeName == node)
	return out
}

func newHints(h *discoveryv1.EndpointHints) *hints {
	if h == nil || len(h.ForZones)+len(h.ForNodes) == 0 {
		return nil
	}
	var out hints
	for _, z := range h.ForZones {
		out.zones = append(out.zones, shared(z.Name))
	}
	for _, n := range h.ForNodes {
		out.nodes = append(out.nodes, shared(n.Name))
	}
	return &out
}

// number returns the port number in the slice for a service's port. It returns 0 if the slice does
// not have this port.
func (s *Slice) number(of *port) uint16 {
	i := slices.IndexFunc(s.ports, func(p port) bool { return p.name == of.name && p.protocol == of.protocol })
	if i < 0 {
		return 0
	}
	return s.ports[i].port
}

// endpoint returns the ith endpoint, with the given port number.
func (s *Slice) endpoint(i int, number uint16) endpoint {
	size := s.family.Size()
	addr, _ := netip.AddrFromSlice([]byte(s.addrs[i*size : (i+1)*size]))
	st := s.states[i]
	out := endpoint{
		addr:  netip.AddrPortFrom(addr, number),
		ready: st&ready != 0, serving: st&serving != 0, terminating: st&terminating != 0, onNode: st&onThisNode != 0,
	}
	if i < len(s.hints) && s.hints[i] != nil {
		out.zones, out.nodes = s.hints[i].zones, s.hints[i].nodes
	}
	return out
}
