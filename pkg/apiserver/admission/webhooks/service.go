// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"net"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apiserver/pkg/util/webhook"
)

// The library resolves the service of a webhook outside of the transports that it is given. A Book
// would then not see failures to resolve a service, and it would record calls under the address of
// an endpoint instead of the name of the service. Therefore the library gets a resolver that returns
// the name of the service, and the transports of a Book resolve it.

// service is one port of a service that a webhook runs behind.
type service struct {
	namespace, name string
	port            int32
}

// host returns the name and port by which the library addresses s.
func (s service) host() string {
	return net.JoinHostPort(s.name+"."+s.namespace+".svc", strconv.Itoa(int(s.port)))
}

// ByName is a service resolver that returns the DNS name of the service as its address.
type ByName struct{}

// ResolveEndpoint returns the URL of a service. It never fails.
func (ByName) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: service{namespace, name, port}.host()}, nil
}

// resolving is a transport that sends each request to an address of a service. It resolves the
// service for every request, so that an idle connection to an old address is not used again.
type resolving struct {
	service  service
	services webhook.ServiceResolver
	next     http.RoundTripper
}

// WrappedRoundTripper returns the inner transport, so that its settings can be found.
func (s *resolving) WrappedRoundTripper() http.RoundTripper { return s.next }

// RoundTrip sends one request. The Host header keeps the name of the service.
func (s *resolving) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != s.service.host() {
		return s.next.RoundTrip(r)
	}
	u, err := s.services.ResolveEndpoint(s.service.namespace, s.service.name, s.service.port)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	at := r.Clone(r.Context())
	if at.Host == "" {
		at.Host = r.URL.Host
	}
	at.URL.Host = u.Host
	return s.next.RoundTrip(at)
}
