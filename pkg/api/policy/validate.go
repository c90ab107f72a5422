// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

func validatePodDisruptionBudget(_ context.Context, b *policyv1.PodDisruptionBudget) field.ErrorList {
	var r report.Report
	spec, path := &b.Spec, field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		r.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set")
	}
	if least := spec.MinAvailable; least != nil {
		r.IntOrPercent(path.Child("minAvailable"), *least)
		r.AtMostAll(path.Child("minAvailable"), *least)
	}
	if most := spec.MaxUnavailable; most != nil {
		r.IntOrPercent(path.Child("maxUnavailable"), *most)
		r.AtMostAll(path.Child("maxUnavailable"), *most)
	}
	r.Selector(path.Child("selector"), spec.Selector)
	if p := spec.UnhealthyPodEvictionPolicy; p != nil {
		report.OneOf(&r, path.Child("unhealthyPodEvictionPolicy"), *p, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
	}
	return r.Errors
}

func validatePodDisruptionBudgetUpdate(ctx context.Context, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	return validatePodDisruptionBudget(ctx, b)
}

func validatePodDisruptionBudgetStatus(_ context.Context, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	var r report.Report
	s, path := &b.Status, field.NewPath("status")
	r.Add(metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))...)
	r.NotNegative(path.Child("disruptionsAllowed"), int64(s.DisruptionsAllowed))
	r.NotNegative(path.Child("currentHealthy"), int64(s.CurrentHealthy))
	r.NotNegative(path.Child("desiredHealthy"), int64(s.DesiredHealthy))
	r.NotNegative(path.Child("expectedPods"), int64(s.ExpectedPods))
	return r.Errors
}
