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
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/clock"
	"keelson.dev/api/storage/v1alpha1"
)

// Config has the dependencies and settings of the chain. Authenticator and Authorizer are required.
type Config struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Audiences     authenticator.Audiences
	// ProxyHeaders are removed from requests after authentication.
	ProxyHeaders ProxyHeaders
	// Serializer encodes the errors of the impersonation filter.
	Serializer runtime.NegotiatedSerializer
	// WriteError answers a request with a Status.
	WriteError func(http.ResponseWriter, *http.Request, error)

	RequestTimeout              time.Duration
	MaxReadsInFlight, MaxWrites int
	// Fairness queues requests by priority and fairness. If nil, MaxReads and MaxWrites limit
	// requests instead.
	Fairness *Fairness
	Clock    clock.Clock
	Log      *slog.Logger
	Metrics  *Metrics
	// Audit audits requests. Nil means auditing is off.
	Audit *Audit
	// Spans records a span of each request. Nil means tracing is off.
	Spans trace.TracerProvider
	// CORSOrigins are the origins whose pages may read answers.
	CORSOrigins []*regexp.Regexp
	// TransportSecurity are the directives of Strict-Transport-Security.
	TransportSecurity []string
	// GoawayChance is the probability that an HTTP/2 request ends its connection. Random must be
	// safe for concurrent use.
	GoawayChance float64
	Random       func() float64
	// RetryAfterShutdown answers requests with 429 and Retry-After while InFlight drains.
	RetryAfterShutdown bool
	// InFlight counts the requests that a shutdown waits for.
	InFlight *InFlight
}

// ProxyHeaders are the request headers in which a front proxy names the user.
type ProxyHeaders struct{ Names, ExtraPrefixes []string }

// Chain returns api behind all filters. The filter named last is the first to see a request. The
// order is Kubernetes'.
func Chain(api http.Handler, cfg Config) http.Handler {
	h := withoutDeadline(api)
	h = withAuthorization(h, cfg)
	if cfg.Fairness != nil {
		h = withFairness(h, cfg)
	} else {
		h = withMaxInFlight(h, cfg)
	}
	h = impersonation.WithConstrainedImpersonation(h, cfg.Authorizer, cfg.Serializer)
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

// Trusted returns api behind the filters for requests of the process itself, which are already
// authenticated and not limited.
func Trusted(api http.Handler, cfg Config) http.Handler {
	h := withTracing(withWarnings(api), cfg)
	if cfg.Audit != nil {
		h = auditApart(withAuditID(withRequestInfo(withAudit(h, cfg), cfg), cfg))
		return withRecovery(h, cfg)
	}
	return withRecovery(withRequestInfo(h, cfg), cfg)
}

// Resolver parses the path of a request into verb, resource and name.
func Resolver() *request.RequestInfoFactory {
	return &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
}

// LongRunning reports whether a request has no deadline: watches and streams.
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
	return isPprof(info.Path)
}
