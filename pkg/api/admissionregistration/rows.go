// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionregistration declares the kinds that extend admission: webhook configurations
// and admission policies.
package admissionregistration

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// CheckParams returns an error if the user may not read the parameters that obj, a policy or a
// binding of one, refers to. old is what obj replaces, or nil.
type CheckParams func(ctx context.Context, obj, old resource.Object) field.ErrorList

// Rows returns the rows of the group, in discovery order. check, which may be nil, checks the
// policies and bindings in which validation finds no fault.
func Rows(check CheckParams) []*resource.Row {
	j := newValidator()
	return []*resource.Row{
		storedAsBeta(mutatingAdmissionPolicyRow(j, check)),
		storedAsBeta(mutatingAdmissionPolicyBindingRow(check)),
		mutatingWebhookConfigurationRow(j),
		validatingAdmissionPolicyRow(j, check),
		validatingAdmissionPolicyBindingRow(check),
		validatingWebhookConfigurationRow(j),
	}
}

// storedAsBeta makes a row store objects as the beta version, as Kubernetes does until the
// previous release can read the final version. The two versions have the same fields, and both
// can be read.
func storedAsBeta(row *resource.Row) *resource.Row {
	stored := *row
	stored.Version = "v1beta1"
	stored.Versions = []resource.Version{{Name: "v1beta1"}, {Name: "v1", New: row.New}}
	row.Codec, row.StoredAs = registry.Codec(&stored), stored.GroupVersionKind()
	return row
}

// validated returns a function that runs rule and, if rule finds no fault, checks the parameters.
func validated[T any](check CheckParams, rule func(context.Context, *T) field.ErrorList) func(context.Context,
	*T) field.ErrorList {
	if check == nil {
		return rule
	}
	return func(ctx context.Context, obj *T) field.ErrorList {
		if errs := rule(ctx, obj); len(errs) > 0 {
			return errs
		}
		return check(ctx, any(obj).(resource.Object), nil)
	}
}

// validatedUpdate does the same as validated, for updates.
func validatedUpdate[T any](check CheckParams,
	rule func(ctx context.Context, obj, old *T) field.ErrorList) func(ctx context.Context, obj, old *T) field.ErrorList {
	if check == nil {
		return rule
	}
	return func(ctx context.Context, obj, old *T) field.ErrorList {
		if errs := rule(ctx, obj, old); len(errs) > 0 {
			return errs
		}
		return check(ctx, any(obj).(resource.Object), any(old).(resource.Object))
	}
}
