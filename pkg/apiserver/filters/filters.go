// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/tracing"
)

var errNoUser = errors.New("no User found in the context")

// withRecovery recovers from panics of handlers: the request gets 500, and the server continues.
func withRecovery(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	resolver := Resolver()
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				cfg.Metrics.abort(r, resolver)
				panic(p) // the HTTP server closes the connection when it recovers http.ErrAbortHandler
			}
			cfg.Log.Error("Panic while serving a request", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			http.Error(w, "This request caused apiserver to panic. Look in the logs for details.",
				http.StatusInternalServerError)
		}()
		next(w, r)
	}
}

func withRequestInfo(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	resolver := Resolver()
	return func(w http.ResponseWriter, r *http.Request) {
		if r = addRequestInfo(resolver, w, r); r != nil {
			next(w, r)
		}
	}
}

// addRequestInfo returns r with the RequestInfo of its path, or nil if it has answered with an error.
func addRequestInfo(resolver *request.RequestInfoFactory, w http.ResponseWriter, r *http.Request) *http.Request {
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		http.Error(w, fmt.Sprintf("Internal Server Error: %q: failed to create RequestInfo: %v",
			r.URL.RequestURI(), err), http.StatusInternalServerError)
		return nil
	}
	ctx := request.WithRequestInfo(r.Context(), info)
	if info.Namespace != "" {
		ctx = request.WithNamespace(ctx, info.Namespace)
	}
	return r.WithContext(ctx)
}

func withCacheControl(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if h := w.Header(); h.Get("Cache-Control") == "" {
			h.Set("Cache-Control", "no-cache, private")
		}
		next(w, r)
	}
}

// withWarnings collects warnings and sends them in headers of the answer. The library limits their
// size and drops duplicates.
func withWarnings(next http.HandlerFunc) http.HandlerFunc {
	return genericfilters.WithWarningRecorder(next).ServeHTTP
}

// withTracing records a span for each authenticated request. If the user is in system:masters or
// system:monitoring, the span continues the trace in the request's header, and its sampling
// decision. For all other users, the span starts a new trace with a link to that trace.
func withTracing(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	if cfg.Spans == nil {
		return next
	}
	return genericfilters.WithTracing(next, cfg.Spans).ServeHTTP
}

// withSpan records a span for the next filter in each traced request. As in Kubernetes, the span
// contains those of all later filters and of the API.
func withSpan(next http.HandlerFunc, cfg Config, name string) http.HandlerFunc {
	if cfg.Spans == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracing.Start(r.Context(), name, func() []attribute.KeyValue { return nil })
		defer span.End()
		if span != nil {
			r = r.WithContext(ctx)
		}
		next(w, r)
	}
}

// withImpersonation lets users with the right to do so act as other users. Only requests with such
// a header reach the library's filter, because it keeps 0.4 KB of the stack of each watch.
func withImpersonation(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	impersonating := impersonation.WithConstrainedImpersonation(next, cfg.Authorizer, cfg.Serializer)
	return func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				impersonating.ServeHTTP(w, r)
				return
			}
		}
		next(w, r)
	}
}

func withAuthentication(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	refuse := refused(cfg)
	return func(w http.ResponseWriter, r *http.Request) {
		if known, ok := cfg.authenticate(w, r); ok {
			next(w, known)
		} else {
			refuse(w, known)
		}
	}
}

// authenticate returns r with its user, without its credentials. If r must be refused, ok is false.
func (c *Config) authenticate(w http.ResponseWriter, r *http.Request) (_ *http.Request, ok bool) {
	defer c.end(authenticationFilter, c.begin())
	if len(c.Audiences) > 0 {
		r = r.WithContext(authenticator.WithAudiences(r.Context(), c.Audiences))
	}
	resp, ok, err := c.Authenticator.AuthenticateRequest(r)
	if ok && !audienceAccepted(c.Audiences, resp.Audiences) {
		err, ok = fmt.Errorf("unable to match the audience: %v , accepted: %v", resp.Audiences, c.Audiences), false
	}
	if err != nil || !ok {
		if err != nil {
			c.Log.Debug("Unable to authenticate the request", "err", err)
		}
		leave(w, r)
		return r, false
	}
	r.Header.Del("Authorization")
	c.ProxyHeaders.remove(r.Header)
	if resp.User.GetName() == user.Anonymous {
		leave(w, r)
	}
	return r.WithContext(request.WithUser(r.Context(), resp.User)), true
}

// leave closes an HTTP/2 connection after this answer. It is called for unauthenticated requests,
// so that a client without credentials cannot send many requests over one connection.
func leave(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor >= 2 {
		w.Header().Set("Connection", "close")
	}
}

func audienceAccepted(want, got authenticator.Audiences) bool {
	return len(want) == 0 || len(got) == 0 || len(want.Intersect(got)) > 0
}

func (p ProxyHeaders) remove(h http.Header) {
	for _, name := range p.Names {
		h.Del(name)
	}
	for _, prefix := range p.ExtraPrefixes {
		for name := range h {
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				delete(h, name)
			}
		}
	}
}

func withAuthorization(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if cfg.authorize(w, r) {
			next(w, r)
		}
	}
}

// authorize reports whether the user may make the request. If not, it has answered with an error.
func (c *Config) authorize(w http.ResponseWriter, r *http.Request) bool {
	start, ctx := c.begin(), r.Context()
	attrs, err := genericfilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		responsewriters.InternalError(w, r, err)
		return false
	}
	decision, reason, err := c.Authorizer.Authorize(ctx, attrs)
	if decision == authorizer.DecisionAllow {
		audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "allow", "authorization.k8s.io/reason", reason)
		c.end(authorizationFilter, start)
		return true
	}
	if err != nil {
		audit.AddAuditAnnotation(ctx, "authorization.k8s.io/reason", "internal error")
		responsewriters.InternalError(w, r, err)
		return false
	}
	audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "forbid", "authorization.k8s.io/reason", reason)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c.WriteError(w, r, responsewriters.ForbiddenStatusError(attrs, reason))
	return false
}

func isPprof(path string) bool { return strings.HasPrefix(path, "/debug/pprof/") }
