// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/resource"
)

// prepareCertificateSigningRequestCreate records who asks; a client cannot say
// so itself.
func prepareCertificateSigningRequestCreate(ctx context.Context, r *certificatesv1.CertificateSigningRequest) {
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	if user, ok := request.UserFrom(ctx); ok {
		r.Spec.Username, r.Spec.UID, r.Spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
		for key, values := range user.GetExtra() {
			if r.Spec.Extra == nil {
				r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			r.Spec.Extra[key] = values
		}
	}
	r.Status = certificatesv1.CertificateSigningRequestStatus{}
}

func prepareCertificateSigningRequestUpdate(_ context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	r.Spec, r.Status = old.Spec, old.Status
}

// prepareCertificateSigningRequestStatus keeps approvals and denials, which have
// a subresource of their own.
func prepareCertificateSigningRequestStatus(ctx context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	r.Spec = old.Spec
	keepConditions(r, old, certificatesv1.CertificateApproved)
	keepConditions(r, old, certificatesv1.CertificateDenied)
	stampConditions(ctx, r, old)
}

func prepareCertificateSigningRequestApproval(ctx context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	stampConditions(ctx, r, old)
	conditions := r.Status.Conditions
	r.Spec, r.Status = old.Spec, old.Status
	r.Status.Conditions = conditions
}

// keepConditions puts back the old conditions of one type where as many are
// there as were; otherwise validation has something to refuse.
func keepConditions(r, old *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	was, is := conditionsOf(old, kind), conditionsOf(r, kind)
	if len(was) != len(is) {
		return
	}
	for i := range was {
		*is[i] = *was[i]
	}
}

func conditionsOf(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) []*certificatesv1.CertificateSigningRequestCondition {
	var found []*certificatesv1.CertificateSigningRequestCondition
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == kind {
			found = append(found, &r.Status.Conditions[i])
		}
	}
	return found
}

func stampConditions(ctx context.Context, r, old *certificatesv1.CertificateSigningRequest) {
	now := resource.Time(ctx)
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = transitionOf(c, old, now)
		}
	}
}

// transitionOf is when the condition took its status: as before, if it had it.
func transitionOf(c *certificatesv1.CertificateSigningRequestCondition, old *certificatesv1.CertificateSigningRequest, now metav1.Time) metav1.Time {
	for _, was := range conditionsOf(old, c.Type) {
		if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			return was.LastTransitionTime
		}
	}
	return now
}

func certificateSigningRequestFields(r *certificatesv1.CertificateSigningRequest) fields.Set {
	return fields.Set{"spec.signerName": r.Spec.SignerName}
}
