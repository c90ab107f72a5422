// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionregistration declares the kinds that extend admission: webhook configurations
// and admission policies.
package admissionregistration

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
)

// CheckParams returns an error if the user may not read the parameter objects of obj, which is a
// policy or a policy binding. old is the object that obj replaces, or nil if obj is new.
type CheckParams func(ctx context.Context, obj, old resource.Object) field.ErrorList

// Rows returns the group's rows of the kind table, in the order in which discovery lists them. The
// function check is called for policies and bindings in which validation finds no errors. It may be
// nil.
func Rows(check CheckParams) []*resource.Row {
	j := newValidator()
	return []*resource.Row{
		mutatingAdmissionPolicyRow(j, check),
		mutatingAdmissionPolicyBindingRow(check),
		mutatingWebhookConfigurationRow(j),
		validatingAdmissionPolicyRow(j, check),
		validatingAdmissionPolicyBindingRow(check),
		validatingWebhookConfigurationRow(j),
	}
}

// validated returns a function that validates an object with rule and, if rule finds no errors,
// calls check.
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

// validatedUpdate does the same as validated, for a rule that validates updates.
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
