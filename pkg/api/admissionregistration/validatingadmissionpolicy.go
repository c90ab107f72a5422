// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// validatingAdmissionPolicyRow declares validatingadmissionpolicies.
func validatingAdmissionPolicyRow() *resource.Row {
	parts := strategy.Parts[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicySpec, admissionregistrationv1.ValidatingAdmissionPolicyStatus](func(o *admissionregistrationv1.ValidatingAdmissionPolicy) (*admissionregistrationv1.ValidatingAdmissionPolicySpec, *admissionregistrationv1.ValidatingAdmissionPolicyStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyList]{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy",
		Categories: []string{"api-extensions"},

		Default:       defaultValidatingAdmissionPolicy,
		PrepareCreate: parts.Create,
		PrepareUpdate: parts.Update,
		ResetFields:   []string{"status"},

		Subresources: []resource.Sub[admissionregistrationv1.ValidatingAdmissionPolicy]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndMeta},
		},
	}.Row()
}
