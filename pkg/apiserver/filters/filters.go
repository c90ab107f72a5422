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
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/tracing"
)

var errNoUser = errors.New("no User found in the context")

// withRecovery recovers from panics of handlers: the request gets 500, and the server continues.
func withRecovery(next http.Handler, cfg Config) http.Handler {
	resolver := Resolver()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		next.ServeHTTP(w, r)
	})
}

func withRequestInfo(next http.Handler, cfg Config) http.Handler {
	resolver := Resolver()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			http.Error(w, fmt.Sprintf("Internal Server Error: %q: failed to create RequestInfo: %v",
				r.URL.RequestURI(), err), http.StatusInternalServerError)
			return
		}
		ctx := request.WithRequestInfo(r.Context(), info)
		if info.Namespace != "" {
			ctx = request.WithNamespace(ctx, info.Namespace)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func withCacheControl(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := w.Header(); h.Get("Cache-Control") == "" {
			h.Set("Cache-Control", "no-cache, private")
		}
		next.ServeHTTP(w, r)
	})
}

// withWarnings collects warnings and sends them in headers of the answer. The library limits their
// size and drops duplicates.
func withWarnings(next http.Handler) http.Handler { return genericfilters.WithWarningRecorder(next) }

// withTracing records a span for each authenticated request. If the user is in system:masters or
// system:monitoring, the span continues the trace in the request's header, and its sampling
// decision. For all other users, the span starts a new trace with a link to that trace.
func withTracing(next http.Handler, cfg Config) http.Handler {
	if cfg.Spans == nil {
		return next
	}
	return genericfilters.WithTracing(next, cfg.Spans)
}

// withSpan records a span for the next filter in each traced request. As in Kubernetes, the span
// contains those of all later filters and of the API.
func withSpan(next http.Handler, cfg Config, name string) http.Handler {
	if cfg.Spans == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracing.Start(r.Context(), name, func() []attribute.KeyValue { return nil })
		defer span.End()
		if span != nil {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

func withAuthentication(next http.Handler, cfg Config) http.Handler {
	refuse := refused(cfg)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := cfg.begin()
		if len(cfg.Audiences) > 0 {
			r = r.WithContext(authenticator.WithAudiences(r.Context(), cfg.Audiences))
		}
		resp, ok, err := cfg.Authenticator.AuthenticateRequest(r)
		if ok && !audienceAccepted(cfg.Audiences, resp.Audiences) {
			err, ok = fmt.Errorf("unable to match the audience: %v , accepted: %v", resp.Audiences, cfg.Audiences), false
		}
		if err != nil || !ok {
			if err != nil {
				cfg.Log.Debug("Unable to authenticate the request", "err", err)
			}
			leave(w, r)
			cfg.end(authenticationFilter, start)
			refuse.ServeHTTP(w, r)
			return
		}
		r.Header.Del("Authorization")
		cfg.ProxyHeaders.remove(r.Header)
		if resp.User.GetName() == user.Anonymous {
			leave(w, r)
		}
		cfg.end(authenticationFilter, start)
		next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), resp.User)))
	})
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

func withAuthorization(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, ctx := cfg.begin(), r.Context()
		attrs, err := genericfilters.GetAuthorizerAttributes(ctx)
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		decision, reason, err := cfg.Authorizer.Authorize(ctx, attrs)
		if decision == authorizer.DecisionAllow {
			audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "allow", "authorization.k8s.io/reason", reason)
			cfg.end(authorizationFilter, start)
			next.ServeHTTP(w, r)
			return
		}
		if err != nil {
			audit.AddAuditAnnotation(ctx, "authorization.k8s.io/reason", "internal error")
			responsewriters.InternalError(w, r, err)
			return
		}
		audit.AddAuditAnnotations(ctx, "authorization.k8s.io/decision", "forbid", "authorization.k8s.io/reason", reason)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		cfg.WriteError(w, r, responsewriters.ForbiddenStatusError(attrs, reason))
	})
}

func isPprof(path string) bool { return strings.HasPrefix(path, "/debug/pprof/") }
