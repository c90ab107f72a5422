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

// Audit is where requests are taken down, and how much of them.
type Audit struct {
	Policy audit.PolicyRuleEvaluator
	Sink   audit.Sink
}

// withAuditID gives every request an ID, which audit events and the answer
// carry. Where nothing is taken down, notes for it cost nothing.
func withAuditID(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.WithAuditContext(r.Context())
		id := r.Header.Get(auditapi.HeaderAuditID)
		if id == "" {
			id = string(uuid.NewUUID())
		}
		audit.WithAuditID(ctx, types.UID(id))
		if cfg.Audit == nil {
			// A context is made once, and initialized by nobody else.
			_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditapi.LevelNone}, nil)
		} else {
			ctx = request.WithReceivedTimestamp(ctx, cfg.Clock.Now())
		}
		w.Header().Set(auditapi.HeaderAuditID, id)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// anew has requests be taken down apart from the requests that made them: the
// server's own ones come with the context of those that they are made for.
func anew(next http.Handler) http.Handler {
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

// withAudit takes down requests of which it is known who sent them.
func withAudit(next http.Handler, cfg Config) http.Handler {
	if cfg.Audit == nil {
		return next
	}
	return genericfilters.WithAudit(next, cfg.Audit.Sink, cfg.Audit.Policy, LongRunning)
}

// refused answers requests of which it is not known, and takes them down as well.
func refused(cfg Config) http.Handler {
	return failed(cfg, apierrors.NewUnauthorized("Unauthorized"))
}

// failed answers requests that get no further than here with err.
func failed(cfg Config, err error) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cfg.WriteError(w, r, err) })
	if cfg.Audit == nil {
		return h
	}
	return genericfilters.WithFailedAuthenticationAudit(h, cfg.Audit.Sink, cfg.Audit.Policy)
}
