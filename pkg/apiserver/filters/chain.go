// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filters is the chain of filters before the API: recovery, deadline, authentication,
// impersonation, limits, authorization and others. Chain defines their order. Each filter is a
// function of its own.
package filters

import (
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
	"keelson.dev/api/storage/v1alpha1"
	"keelson.dev/keelson/pkg/storesnapshot"
)

// Config has the dependencies and settings of the chain. Authenticator and Authorizer are required.
type Config struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.UnconditionalAuthorizer
	Audiences     authenticator.Audiences
	// ProxyHeaders are removed from requests once these are authenticated.
	ProxyHeaders ProxyHeaders
	// Serializer encodes errors of the impersonation filter.
	Serializer runtime.NegotiatedSerializer
	// WriteError answers a request with an error as Kubernetes' Status.
	WriteError func(http.ResponseWriter, *http.Request, error)

	RequestTimeout              time.Duration
	MaxReadsInFlight, MaxWrites int
	// Fairness limits requests by priority and fairness. If it is nil, MaxReadsInFlight and MaxWrites
	// limit them instead.
	Fairness *Fairness
	Clock    clock.Clock
	Log      *slog.Logger
	Metrics  *Metrics
	// Audit is the audit policy and the sink. It is nil if auditing is off.
	Audit *Audit
	// Spans records a span for each request. It is nil if tracing is off.
	Spans trace.TracerProvider
	// CORSOrigins match the origins whose pages may read answers in a browser.
	CORSOrigins []*regexp.Regexp
	// TransportSecurity are the directives of the header Strict-Transport-Security.
	TransportSecurity []string
	// GoawayChance is the probability, from 0 to 1, that the server closes the connection after an
	// HTTP/2 request. Random returns numbers in [0, 1) and must be safe for concurrent use.
	GoawayChance float64
	Random       func() float64
	// If RetryAfterShutdown is true, new requests get 429 with Retry-After while InFlight drains.
	RetryAfterShutdown bool
	// InFlight counts the requests that a shutdown waits for.
	InFlight *InFlight
}

// ProxyHeaders are the names of the request headers in which a front proxy names the user, and the
// prefixes of such names.
type ProxyHeaders struct{ Names, ExtraPrefixes []string }

// Chain returns a handler that passes requests through all filters and then to api. The filter that
// is added last is the first to receive a request. The order is that of Kubernetes.
func Chain(api http.Handler, cfg Config) http.Handler {
	h := withoutDeadline(api.ServeHTTP)
	h = withSpan(withAuthorization(h, cfg), cfg, string(authorizationFilter))
	if cfg.Fairness != nil {
		h = withSpan(withFairness(h, cfg), cfg, string(fairnessFilter))
	} else {
		h = withMaxInFlight(h, cfg)
	}
	h = withImpersonation(h, cfg)
	h = withSpan(h, cfg, "constrainedimpersonation")
	h = withAudit(h, cfg)
	h = withTracing(h, cfg)
	h = withAuthentication(h, cfg)
	h = withCORS(h, cfg.CORSOrigins)
	h = withWarnings(h)
	h = withDeadline(h, cfg)
	h = withInFlight(h, cfg)
	h = withGoaway(h, cfg.GoawayChance, cfg.Random)
	h = withCacheControl(h)
	h = withTransportSecurity(h, cfg.TransportSecurity)
	h = withRetryAfter(h, cfg)
	h = withRequestInfo(h, cfg)
	h = withAuditID(h, cfg)
	h = withRecovery(h, cfg)
	h = withStack(h)
	return h
}

// Trusted returns a handler for requests of the server to itself. It passes them through only those
// filters that apply to requests that are already authenticated and have no limits.
func Trusted(api http.Handler, cfg Config) http.Handler {
	h := withTracing(withWarnings(api.ServeHTTP), cfg)
	if cfg.Audit != nil {
		h = auditApart(withAuditID(withRequestInfo(withAudit(h, cfg), cfg), cfg))
		return withRecovery(h, cfg)
	}
	return withRecovery(withRequestInfo(h, cfg), cfg)
}

// Resolver returns the parser of the paths of requests into verb, resource and name.
func Resolver() *request.RequestInfoFactory {
	return &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
}

// LongRunning reports whether a request is a watch, a stream, a proxied request, a profile or a
// snapshot of the store, and so has no deadline.
func LongRunning(r *http.Request, info *request.RequestInfo) bool {
	switch {
	case info.Verb == "watch" || info.Verb == "proxy":
		return true
	case info.IsResourceRequest:
		switch info.Subresource {
		case "attach", "exec", "proxy", "log", "portforward":
			return true
		case v1alpha1.DriversSubresource: // the kubelet enforces a timeout
			return info.APIGroup == v1alpha1.Group
		}
		return false
	}
	return isPprof(info.Path) || info.Path == storesnapshot.Path
}
