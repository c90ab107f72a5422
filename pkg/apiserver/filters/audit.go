// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Audit is the audit policy and the sink of events.
type Audit struct {
	Policy audit.PolicyRuleEvaluator
	Sink   audit.Sink
}

// withAuditID gives every request an ID, which audit events and the answer carry. If auditing is
// off, audit annotations of the request are discarded cheaply.
func withAuditID(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.WithAuditContext(r.Context())
		id := r.Header.Get(auditapi.HeaderAuditID)
		if id == "" {
			id = string(uuid.NewUUID())
		}
		audit.WithAuditID(ctx, types.UID(id))
		if cfg.Audit == nil {
			// The context is new, so Init cannot fail.
			_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelNone}, nil)
		} else {
			ctx = request.WithReceivedTimestamp(ctx, cfg.Clock.Now())
		}
		w.Header().Set(auditapi.HeaderAuditID, id)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// auditApart gives the server's own requests audit events of their own. Their contexts carry the
// event of the request that caused them.
func auditApart(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(Unaudited(r.Context())))
	})
}

// Unaudited returns ctx without the audit event of its request. It is for a request that gets an
// audit event of its own.
func Unaudited(ctx context.Context) context.Context { return unaudited{ctx} }

// unaudited is a context without its request's audit event.
type unaudited struct{ context.Context }

// Value implements context.Context.
func (c unaudited) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*audit.AuditContext); ok {
		return nil
	}
	return v
}

// withAudit audits requests of authenticated users.
func withAudit(next http.Handler, cfg Config) http.Handler {
	if cfg.Audit == nil {
		return next
	}
	return genericfilters.WithAudit(next, cfg.Audit.Sink, cfg.Audit.Policy, LongRunning)
}

// refused answers requests that failed authentication, and audits them.
func refused(cfg Config) http.Handler {
	return failed(cfg, apierrors.NewUnauthorized("Unauthorized"))
}

// failed answers requests with err.
func failed(cfg Config, err error) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cfg.WriteError(w, r, err) })
	if cfg.Audit == nil {
		return h
	}
	return genericfilters.WithFailedAuthenticationAudit(h, cfg.Audit.Sink, cfg.Audit.Policy)
}
