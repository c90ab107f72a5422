// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/request"
	proxyutil "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"

	"keelson.dev/keelson/pkg/daemon"
)

// Resolver finds the address of a service's port.
type Resolver interface {
	ResolveEndpoint(namespace, name string, port int32) (*url.URL, error)
}

// location is the namespace, name and port of the service of an extension server.
type location struct {
	namespace, name string
	port            int32
}

func locationOf(s *apiregistrationv1.ServiceReference) location {
	l := location{namespace: s.Namespace, name: s.Name, port: 443}
	if s.Port != nil {
		l.port = *s.Port
	}
	return l
}

// carrier sends requests to the service of one APIService, or to a handler of this server. It is
// immutable.
type carrier struct {
	served    http.Handler // handler of Config.Served; nil if the service answers
	name      string       // name of the APIService
	gv        schema.GroupVersion
	service   location
	available bool
	resolver  Resolver
	transport http.RoundTripper
	redirects bool // whether redirects are passed on to clients
	// broken is the error of creating transport, or nil.
	broken  error
	tracing *daemon.Tracing
}

func (a *Aggregator) newCarrier(s *apiregistrationv1.APIService) *carrier {
	c := &carrier{
		name: s.Name, gv: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version},
		service: locationOf(s.Spec.Service), resolver: a.cfg.Resolver, tracing: a.cfg.Tracing, redirects: a.cfg.PassRedirects,
		available: helper.IsAPIServiceConditionTrue(s, apiregistrationv1.Available),
	}
	cert, key := a.identity()
	c.transport, c.broken = transport.New(remote.BuildTransportConfig(a.dial, cert, key, s))
	return c
}

const unavailable = "service unavailable"

// ServeHTTP forwards a request to the extension server, with the name of the user in headers.
func (c *carrier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.served == nil && !c.available {
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return
	}
	c.ask(w, r)
}

// ask is ServeHTTP without the check that the APIService is available.
func (c *carrier) ask(w http.ResponseWriter, r *http.Request) {
	switch {
	case c.served != nil:
		c.served.ServeHTTP(w, r)
		return
	case c.broken != nil:
		http.Error(w, c.broken.Error(), http.StatusInternalServerError)
		return
	}
	u, ok := request.UserFrom(r.Context())
	if !ok {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	at, err := c.resolver.ResolveEndpoint(c.service.namespace, c.service.name, c.service.port)
	if err != nil {
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return
	}
	target := &url.URL{Scheme: "https", Host: at.Host, Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}
	out, cancel := proxyutil.NewRequestForProxy(target, r)
	defer cancel()
	rt := transport.NewAuthProxyRoundTripper(u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra(), c.transport)
	upgrade := httpstream.IsUpgradeRequest(r)
	if upgrade {
		// An upgraded connection does not use rt, so set the headers that rt would add.
		transport.SetAuthProxyHeaders(out, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
	} else {
		rt = c.tracing.RoundTripper(rt)
	}
	carry := proxy.NewUpgradeAwareHandler(target, rt, true, upgrade, failure{})
	carry.RejectForwardingRedirects = !c.redirects
	carry.ServeHTTP(w, out)
}

// failure writes the answer for requests that the extension server did not answer.
type failure struct{}

// Error answers 503 with the reason, as plain text.
func (failure) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
