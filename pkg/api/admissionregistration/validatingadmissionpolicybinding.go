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

// validatingAdmissionPolicyBindingRow declares validatingadmissionpolicybindings.
func validatingAdmissionPolicyBindingRow(check CheckParams) *resource.Row {
	return resource.Of[admissionregistrationv1.ValidatingAdmissionPolicyBindingList](resource.Kind[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding",
		Categories: []string{"api-extensions"},

		MetaOnUpdate:  resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Default:       defaultValidatingAdmissionPolicyBinding,
		PrepareCreate: strategy.StartGeneration[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
		PrepareUpdate: strategy.CountSpec(func(o *admissionregistrationv1.ValidatingAdmissionPolicyBinding) *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
			return &o.Spec
		}),
		AnyFinalizer:   true,
		Validate:       validated(check, validateValidatingBinding),
		ValidateUpdate: validatedUpdate(check, validateValidatingBindingUpdate),
		Warnings:       warnStatic[admissionregistrationv1.ValidatingAdmissionPolicyBinding],

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "PolicyName", Type: "string", Description: "PolicyName indicates the policy definition which the policy binding binded to"},
			{Name: "ParamRef", Type: "string", Description: "ParamRef indicates the param resource which sets the configuration param"},
			column.Age(),
		},
		Cells: validatingAdmissionPolicyBindingCells,
	})
}
