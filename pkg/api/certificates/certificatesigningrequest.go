// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// certificateSigningRequestRow declares certificatesigningrequests.
func certificateSigningRequestRow() *resource.Row {
	return resource.Of[certificatesv1.CertificateSigningRequestList](resource.Kind[*certificatesv1.CertificateSigningRequest]{
		Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests", Kind: "CertificateSigningRequest",
		ShortNames: []string{"csr"},

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		PrepareCreate:            prepareCertificateSigningRequestCreate,
		PrepareUpdate:            prepareCertificateSigningRequestUpdate,
		Fields:                   certificateSigningRequestFields,
		SelectableFields:         []string{"spec.signerName"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"spec", "status"},
		ValidateName:             report.SegmentName,
		Validate:                 validateCertificateSigningRequest,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			column.Age(),
			{Name: "SignerName", Type: "string", Description: certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()["signerName"]},
			{Name: "Requestor", Type: "string", Description: certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()["request"]},
			{Name: "RequestedDuration", Type: "string", Description: certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()["expirationSeconds"]},
			{Name: "Condition", Type: "string", Description: certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]},
		},
		Cells: certificateSigningRequestCells,

		Subresources: []resource.Sub[*certificatesv1.CertificateSigningRequest]{
			{Subresource: strategy.View("approval", "spec", "status.certificate").WithMetaRules(resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true}).WithoutTable(), PrepareUpdate: prepareCertificateSigningRequestApproval, ValidateUpdate: validateCertificateSigningRequestState},
			{Subresource: strategy.View("status", "spec", "status.conditions").WithMetaRules(resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true}), PrepareUpdate: prepareCertificateSigningRequestStatus, ValidateUpdate: validateCertificateSigningRequestStatus},
		},
	})
}
