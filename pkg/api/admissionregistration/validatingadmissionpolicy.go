// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// validatingAdmissionPolicyRow declares validatingadmissionpolicies.
func validatingAdmissionPolicyRow(j *judge, check CheckParams) *resource.Row {
	parts := strategy.Parts[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicySpec, admissionregistrationv1.ValidatingAdmissionPolicyStatus](func(o *admissionregistrationv1.ValidatingAdmissionPolicy) (*admissionregistrationv1.ValidatingAdmissionPolicySpec, *admissionregistrationv1.ValidatingAdmissionPolicyStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[admissionregistrationv1.ValidatingAdmissionPolicyList](resource.Kind[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy",
		Categories: []string{"api-extensions"},

		MetaOnUpdate:   resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Default:        defaultValidatingAdmissionPolicy,
		PrepareCreate:  parts.Create,
		PrepareUpdate:  parts.Update,
		ResetFields:    []string{"status"},
		AnyFinalizer:   true,
		Validate:       validated(check, j.validatingPolicy),
		ValidateUpdate: validatedUpdate(check, j.validatingPolicyUpdate),
		Warnings:       warnStatic[admissionregistrationv1.ValidatingAdmissionPolicy],

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Validations", Type: "integer", Description: "Validations indicates the number of validation rules defined in this configuration"},
			{Name: "ParamKind", Type: "string", Description: "ParamKind specifies the kind of resources used to parameterize this policy"},
			column.Age(),
		},
		Cells: validatingAdmissionPolicyCells,

		Subresources: []resource.Sub[*admissionregistrationv1.ValidatingAdmissionPolicy]{
			{Subresource: strategy.View("status", "spec", "metadata").WithMetaRules(resource.MetaRules{SkipUpdateChecks: true}), PrepareUpdate: parts.KeepSpecAndMeta, ValidateUpdate: validatePolicyStatus},
		},
	})
}
