// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// certificateSigningRequestRow declares certificatesigningrequests.
func certificateSigningRequestRow() *resource.Row {
	return resource.Kind[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList]{
		Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests", Kind: "CertificateSigningRequest",
		ShortNames: []string{"csr"},

		PrepareCreate:            prepareCertificateSigningRequestCreate,
		PrepareUpdate:            prepareCertificateSigningRequestUpdate,
		Fields:                   certificateSigningRequestFields,
		SelectableFields:         []string{"spec.signerName"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"spec", "status"},

		Subresources: []resource.Sub[certificatesv1.CertificateSigningRequest]{
			{Subresource: strategy.View("approval", "spec", "status.certificate"), PrepareUpdate: prepareCertificateSigningRequestApproval},
			{Subresource: strategy.View("status", "spec", "status.conditions"), PrepareUpdate: prepareCertificateSigningRequestStatus},
		},
	}.Row()
}
