// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filters is what every request passes before it reaches the API:
// recovery, deadline, authentication, impersonation, limits, authorization.
// Chain states the order; each filter is a file-local function.
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

// Config is what the chain needs. Authenticator and Authorizer are required.
type Config struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Audiences     authenticator.Audiences
	// ProxyHeaders are removed from requests once the user is known.
	ProxyHeaders ProxyHeaders
	// Serializer writes the errors of the impersonation filter.
	Serializer runtime.NegotiatedSerializer
	// WriteError answers a request with a Status.
	WriteError func(http.ResponseWriter, *http.Request, error)

	RequestTimeout              time.Duration
	MaxReadsInFlight, MaxWrites int
	// Fairness shares the server between requests; nil: their number is limited.
	Fairness *Fairness
	Clock    clock.Clock
	Log      *slog.Logger
	Metrics  *Metrics
	// Audit takes down requests; nil: nobody does.
	Audit *Audit
	// Spans makes a span of each request; nil: there are none.
	Spans trace.TracerProvider
	// CORSOrigins are those whose pages may read answers.
	CORSOrigins []*regexp.Regexp
	// TransportSecurity are the directives of Strict-Transport-Security.
	TransportSecurity []string
	// GoawayChance is the share of HTTP/2 requests that end their connection, by Random,
	// which is safe for concurrent use.
	GoawayChance float64
	Random       func() float64
	// RetryAfterShutdown has requests that come while InFlight drains be told to try again.
	RetryAfterShutdown bool
	// InFlight counts ordinary requests, which a shutdown waits for.
	InFlight *InFlight
}

// ProxyHeaders are the request headers a front proxy names the user by.
type ProxyHeaders struct{ Names, ExtraPrefixes []string }

// Chain puts the filters before api. The last one named here is the first a
// request meets; the order is that of Kubernetes.
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

// Trusted is the part of the chain that requests of the process itself pass:
// they come with a user, and are not limited.
func Trusted(api http.Handler, cfg Config) http.Handler {
	h := withTracing(withWarnings(api), cfg)
	if cfg.Audit != nil {
		h = anew(withAuditID(withRequestInfo(withAudit(h, cfg), cfg), cfg))
		return withRecovery(h, cfg)
	}
	return withRecovery(withRequestInfo(h, cfg), cfg)
}

// Resolver reads a request's meaning from its path.
func Resolver() *request.RequestInfoFactory {
	return &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
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
