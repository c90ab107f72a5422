// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/apiserver/filters"
)

// annBatch is the audit annotation with the audit ID of the batch. The audit event of each part has
// it.
const annBatch = v1alpha1.Group + "/batch"

// sender has the user who sent a batch of bindings or verdicts, and data about the request for
// audit events.
type sender struct {
	user     user.Info
	header   http.Header
	remote   string
	received time.Time
	// audit is the audit context of the batch. It is nil if auditing is off.
	audit *audit.AuditContext
}

func senderOf(r *http.Request) *sender {
	u, _ := request.UserFrom(r.Context())
	received, _ := request.ReceivedTimestampFrom(r.Context())
	return &sender{user: u, header: r.Header, remote: r.RemoteAddr, received: received,
		audit: audit.AuditContextFrom(r.Context())}
}

// part is an item of a batch request: a binding, a status update or a deletion of a pod. It stands for
// the request that a client would otherwise send for this pod alone: the user needs the same right,
// and the audit log gets the same event.
type part struct {
	// ctx is the context for the work of the part. It is done when the request of the batch ends.
	ctx   context.Context
	audit *audit.AuditContext // nil if auditing is off
}

// begin authorizes a part. It starts an audit event, which contains body if the audit policy
// requires request bodies. The caller must call end even if begin returns an error.
func (b *Batch) begin(ctx context.Context, from *sender, attrs authorizer.AttributesRecord, body any) (*part, error) {
	attrs.User, attrs.ResourceRequest, attrs.APIVersion = from.user, true, "v1"
	p := &part{ctx: ctx}
	if b.Audit != nil {
		if err := p.record(b.Audit, from, &attrs, body); err != nil {
			return p, err
		}
	}
	decision, reason, err := b.Authorizer.Authorize(p.ctx, attrs)
	switch {
	case decision == authorizer.DecisionAllow:
		p.annotate("allow", reason)
		return p, nil
	case err != nil:
		audit.AddAuditAnnotation(p.ctx, annReason, "internal error")
		return p, apierrors.NewInternalError(err)
	}
	p.annotate("forbid", reason)
	return p, responsewriters.ForbiddenStatusError(attrs, reason)
}

// Audit annotations in which Kubernetes records the authorization decision.
const (
	annDecision = "authorization.k8s.io/decision"
	annReason   = "authorization.k8s.io/reason"
)

func (p *part) annotate(decision, reason string) {
	if p.audit != nil {
		audit.AddAuditAnnotations(p.ctx, annDecision, decision, annReason, reason)
	}
}

// record starts the audit event of a part of a batch (one binding or verdict) and makes p.ctx
// contain it.
func (p *part) record(to *filters.Audit, from *sender, attrs *authorizer.AttributesRecord, body any) error {
	rule := to.Policy.EvaluatePolicyRule(attrs)
	audit.ObservePolicyLevel(p.ctx, rule.Level)
	p.ctx = audit.WithAuditContext(filters.Unaudited(p.ctx))
	p.audit = audit.AuditContextFrom(p.ctx)
	if err := p.audit.Init(rule, to.Sink); err != nil {
		return apierrors.NewInternalError(err)
	}
	if rule.Level == auditapi.LevelNone {
		return nil
	}
	audit.WithAuditID(p.ctx, uuid.NewUUID())
	impersonated := from.audit.GetEventImpersonatedUser()
	by := *attrs
	if impersonated != nil { // attrs has the impersonated user, but the event needs the user who sent the request
		u := from.audit.GetEventUser()
		by.User = &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
		p.audit.LogImpersonatedUser(from.user, "")
	}
	single := &http.Request{Method: methodOf(attrs.Verb), URL: &url.URL{Path: pathOf(attrs)},
		Header: from.header, RemoteAddr: from.remote}
	audit.LogRequestMetadata(p.ctx, single, from.received, by)
	audit.AddAuditAnnotation(p.ctx, annBatch, string(from.audit.AuditID()))
	if !rule.Level.Less(auditapi.LevelRequest) {
		raw, err := json.Marshal(body)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		p.audit.LogRequestPatch(raw)
	}
	if !p.audit.ProcessEventStage(p.ctx, auditapi.StageRequestReceived) {
		audit.ApiserverAuditDroppedCounter.WithContext(p.ctx).Inc()
		return apierrors.NewInternalError(errNotRecorded)
	}
	return nil
}

// end completes the audit event of a part of a batch with result r.
func (p *part) end(r v1alpha1.Result) {
	if p.audit == nil || !p.audit.Enabled() {
		return
	}
	status := &metav1.Status{Code: r.Code}
	if r.Code >= http.StatusBadRequest {
		status.Status, status.Reason, status.Message = metav1.StatusFailure, metav1.StatusReason(r.Reason), r.Message
	}
	p.audit.SetEventResponseStatus(status)
	p.audit.ProcessEventStage(p.ctx, auditapi.StageResponseComplete)
}

// ended completes the audit event of a part and returns err. The result in the event is err, or
// code if err is nil.
func (p *part) ended(code int32, err error) error {
	if err != nil {
		p.end(refused(err))
	} else {
		p.end(v1alpha1.Result{Code: code})
	}
	return err
}

func methodOf(verb string) string {
	switch verb {
	case "patch":
		return http.MethodPatch
	case "delete":
		return http.MethodDelete
	}
	return http.MethodPost
}

// pathOf returns the path of the request that a part of a batch replaces, for the part's audit
// event.
func pathOf(a *authorizer.AttributesRecord) string {
	root := "/api/"
	if a.APIGroup != "" {
		root = "/apis/" + a.APIGroup + "/"
	}
	path := root + a.APIVersion + "/namespaces/" + a.Namespace + "/" + a.Resource
	for _, more := range []string{a.Name, a.Subresource} {
		if more != "" {
			path += "/" + more
		}
	}
	return path
}

// ofPod returns the attributes of a request for a pod, or for a subresource of the pod.
func ofPod(verb, subresource string, pod v1alpha1.PodRef) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: verb, Resource: string(corev1.ResourcePods), Subresource: subresource, Namespace: pod.Namespace, Name: pod.Name,
	}
}
