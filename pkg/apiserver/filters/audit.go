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

// withAuditID gives each request an audit ID, which is in its audit events and in a header of the
// answer. If auditing is off, it also disables the collection of audit annotations.
func withAuditID(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { next(w, cfg.addAuditID(w, r)) }
}

// addAuditID returns r with an audit context, and sets the header of the answer.
func (c *Config) addAuditID(w http.ResponseWriter, r *http.Request) *http.Request {
	ctx := audit.WithAuditContext(r.Context())
	id := r.Header.Get(auditapi.HeaderAuditID)
	if id == "" {
		id = string(uuid.NewUUID())
	}
	audit.WithAuditID(ctx, types.UID(id))
	if c.Audit == nil {
		// Init cannot fail, because the audit context is new.
		_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelNone}, nil)
	} else {
		ctx = request.WithReceivedTimestamp(ctx, c.Clock.Now())
	}
	w.Header().Set(auditapi.HeaderAuditID, id)
	return r.WithContext(ctx)
}

// auditApart makes the server's requests to itself have audit events of their own. Without it, they
// would write to the event of the client's request that caused them, which is in their contexts.
func auditApart(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r.WithContext(Unaudited(r.Context())))
	}
}

// Unaudited returns ctx without the audit event of its request. It is used for requests that the
// server makes while it handles another one, and that get audit events of their own.
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
func withAudit(next http.HandlerFunc, cfg Config) http.HandlerFunc {
	if cfg.Audit == nil {
		return next
	}
	return withSpan(genericfilters.WithAudit(next, cfg.Audit.Sink, cfg.Audit.Policy, LongRunning).ServeHTTP, cfg, "audit")
}

// refused returns a handler that rejects requests that failed authentication, and audits them.
func refused(cfg Config) http.HandlerFunc {
	return failed(cfg, apierrors.NewUnauthorized("Unauthorized"))
}

// failed returns a handler that answers all requests with err, and audits them.
func failed(cfg Config, err error) http.HandlerFunc {
	h := func(w http.ResponseWriter, r *http.Request) { cfg.WriteError(w, r, err) }
	if cfg.Audit == nil {
		return h
	}
	return genericfilters.WithFailedAuthenticationAudit(http.HandlerFunc(h), cfg.Audit.Sink, cfg.Audit.Policy).ServeHTTP
}
