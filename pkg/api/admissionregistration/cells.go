// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func validatingWebhookConfigurationCells(c *admissionregistrationv1.ValidatingWebhookConfiguration, env resource.CellEnv) []any {
	return []any{c.Name, int64(len(c.Webhooks)), env.Age(c.CreationTimestamp)}
}

func mutatingWebhookConfigurationCells(c *admissionregistrationv1.MutatingWebhookConfiguration, env resource.CellEnv) []any {
	return []any{c.Name, int64(len(c.Webhooks)), env.Age(c.CreationTimestamp)}
}

func validatingAdmissionPolicyCells(p *admissionregistrationv1.ValidatingAdmissionPolicy, env resource.CellEnv) []any {
	return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), env.Age(p.CreationTimestamp)}
}

func mutatingAdmissionPolicyCells(p *admissionregistrationv1.MutatingAdmissionPolicy, env resource.CellEnv) []any {
	return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), env.Age(p.CreationTimestamp)}
}

func validatingAdmissionPolicyBindingCells(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, env resource.CellEnv) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), env.Age(b.CreationTimestamp)}
}

func mutatingAdmissionPolicyBindingCells(b *admissionregistrationv1.MutatingAdmissionPolicyBinding, env resource.CellEnv) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), env.Age(b.CreationTimestamp)}
}

func paramKind(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return column.Unset
	}
	return k.APIVersion + "/" + k.Kind
}

func paramRef(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil || ref.Name == "" && ref.Selector == nil:
		return column.Unset
	case ref.Name == "":
		return ref.Selector.String()
	case ref.Namespace != "":
		return ref.Namespace + "/" + ref.Name
	default:
		return "*/" + ref.Name
	}
}
