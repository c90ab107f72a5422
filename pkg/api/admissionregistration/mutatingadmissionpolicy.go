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

// mutatingAdmissionPolicyRow declares mutatingadmissionpolicies.
func mutatingAdmissionPolicyRow(j *judge, check CheckParams) *resource.Row {
	return resource.Of[admissionregistrationv1.MutatingAdmissionPolicyList](resource.Kind[*admissionregistrationv1.MutatingAdmissionPolicy]{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy",
		Categories: []string{"api-extensions"},

		MetaOnUpdate:  resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Default:       defaultMutatingAdmissionPolicy,
		PrepareCreate: strategy.StartGeneration[admissionregistrationv1.MutatingAdmissionPolicy],
		PrepareUpdate: strategy.CountSpec(func(o *admissionregistrationv1.MutatingAdmissionPolicy) *admissionregistrationv1.MutatingAdmissionPolicySpec {
			return &o.Spec
		}),
		AnyFinalizer:   true,
		Validate:       validated(check, j.mutatingPolicy),
		ValidateUpdate: validatedUpdate(check, j.mutatingPolicyUpdate),
		Warnings:       warnStatic[admissionregistrationv1.MutatingAdmissionPolicy],

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Mutations", Type: "integer", Description: "Mutation indicates the number of mutations rules defined in this configuration"},
			{Name: "ParamKind", Type: "string", Description: "ParamKind specifies the kind of resources used to parameterize this policy"},
			column.Age(),
		},
		Cells: mutatingAdmissionPolicyCells,
	})
}
