// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// h2c is the appProtocol of Services whose endpoints use HTTP/2 without TLS.
const h2c = "kubernetes.io/h2c"

// Backend is a port of a Service with its endpoints.
type Backend struct {
	// Name is namespace/name:port of the Service.
	Name string
	// Namespace is the namespace of the Service.
	Namespace string
	// HTTP2 is true if the endpoints use HTTP/2 without TLS.
	HTTP2 bool
	// Endpoints are addresses with ports. If it is empty, no endpoint is ready.
	Endpoints []string

	turn atomic.Uint32
}

// next returns the endpoint for the next request. It goes through the endpoints in turn.
func (b *Backend) next() string {
	return b.Endpoints[int(b.turn.Add(1)-1)%len(b.Endpoints)]
}

// Backends creates the backends of one routing table, each of them once.
type Backends struct {
	service func(namespace, name string) *v1.Service
	slices  func(namespace, service string) []*discoveryv1.EndpointSlice
	made    map[string]*Backend
}

// NewBackends returns Backends that reads Services and EndpointSlices with the given functions.
func NewBackends(service func(namespace, name string) *v1.Service,
	slices func(namespace, service string) []*discoveryv1.EndpointSlice) Backends {
	return Backends{service, slices, map[string]*Backend{}}
}

// find returns the backend to which an Ingress of the namespace refers. If the Service does not
// exist, or the Ingress refers to another kind of resource, the backend has no endpoints.
func (bs Backends) find(namespace string, ref *networkingv1.IngressBackend) *Backend {
	if ref.Service == nil {
		return &Backend{Name: namespace + "/", Namespace: namespace}
	}
	port := ref.Service.Port.Name
	if port == "" {
		port = strconv.Itoa(int(ref.Service.Port.Number))
	}
	name := namespace + "/" + ref.Service.Name + ":" + port
	b := bs.made[name]
	if b == nil {
		b = &Backend{Name: name, Namespace: namespace}
		bs.made[name] = b
		if svc := bs.service(namespace, ref.Service.Name); svc != nil && svc.Spec.Type != v1.ServiceTypeExternalName {
			b.fill(svc, ref.Service.Port, bs.slices(namespace, svc.Name))
		}
	}
	return b
}

func (b *Backend) fill(svc *v1.Service, port networkingv1.ServiceBackendPort, slices []*discoveryv1.EndpointSlice) {
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.Protocol != v1.ProtocolTCP && p.Protocol != "" || port.Name != "" && p.Name != port.Name ||
			port.Name == "" && p.Port != port.Number {
			continue
		}
		b.HTTP2 = p.AppProtocol != nil && *p.AppProtocol == h2c
		b.Endpoints = endpoints(p.Name, slices)
		return
	}
}

// endpoints returns the ready endpoints of a port. If none is ready, it returns the terminating
// endpoints that still serve.
func endpoints(port string, all []*discoveryv1.EndpointSlice) []string {
	var ready, serving []string
	for _, slice := range all {
		number := portOf(slice, port)
		if number == "" {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || !reachable(e.Addresses[0]) {
				continue
			}
			at := net.JoinHostPort(e.Addresses[0], number)
			switch c := &e.Conditions; {
			case c.Ready == nil || *c.Ready:
				ready = append(ready, at)
			case c.Serving != nil && *c.Serving:
				serving = append(serving, at)
			}
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.Sort(ready)
	return slices.Compact(ready)
}

func portOf(slice *discoveryv1.EndpointSlice, name string) string {
	for _, p := range slice.Ports {
		if p.Port != nil && (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) {
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}

// reachable reports whether an endpoint may have the address. It rejects loopback, link-local,
// multicast and unspecified addresses, which cannot belong to pods.
func reachable(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsGlobalUnicast() && !a.IsLinkLocalUnicast()
}
