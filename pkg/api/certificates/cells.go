// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func certificateSigningRequestCells(r *certificatesv1.CertificateSigningRequest, env resource.CellEnv) []any {
	lifetime := column.None
	if r.Spec.ExpirationSeconds != nil {
		lifetime = duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
	}
	return []any{
		r.Name, env.Age(r.CreationTimestamp), column.OrNone(r.Spec.SignerName), r.Spec.Username, lifetime, condition(r),
	}
}

func condition(r *certificatesv1.CertificateSigningRequest) string {
	has := func(kind certificatesv1.RequestConditionType) bool { return len(conditionsOf(r, kind)) > 0 }
	text := "Pending"
	if has(certificatesv1.CertificateDenied) {
		text = "Denied"
	} else if has(certificatesv1.CertificateApproved) {
		text = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		text += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}
