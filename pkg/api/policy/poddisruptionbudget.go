// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy declares pod disruption budgets.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package policy

import (
	"context"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		podDisruptionBudgetRow(),
	}
}

// podDisruptionBudgetRow returns the row of the kind table for the resource poddisruptionbudgets.
func podDisruptionBudgetRow() *resource.Row {
	parts := strategy.Parts[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetSpec,
		policyv1.PodDisruptionBudgetStatus](
		func(o *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[policyv1.PodDisruptionBudgetList](resource.Kind[*policyv1.PodDisruptionBudget]{
		Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Namespaced: true,
		ShortNames: []string{"pdb"},

		MetaOnUpdate: resource.CheckNeither,
		PrepareCreate: func(ctx context.Context, b *policyv1.PodDisruptionBudget) {
			parts.Create(ctx, b)
			dropReserved(b.Spec.Selector)
		},
		ValidateName: report.SegmentName,
		AnyFinalizer: true,
		MetaLast:     true,
		Validate:     validatePodDisruptionBudget,
		PrepareUpdate: func(ctx context.Context, b, old *policyv1.PodDisruptionBudget) {
			parts.Update(ctx, b, old)
			if !equality.Semantic.DeepEqual(b.Spec.Selector, old.Spec.Selector) {
				dropReserved(b.Spec.Selector)
			}
		},
		ValidateUpdate: validatePodDisruptionBudgetUpdate,
		ResetFields:    []string{"status"},

		StoredForms: olderBudgets(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Min Available", Type: "string", Description: "The minimum number of pods that must be available."},
			{Name: "Max Unavailable", Type: "string", Description: "The maximum number of pods that may be unavailable."},
			{Name: "Allowed Disruptions", Type: "integer",
				Description: "Calculated number of pods that may be disrupted at this time."},
			column.Age(),
		},
		Cells: podDisruptionBudgetCells,

		Subresources: []resource.Sub[*policyv1.PodDisruptionBudget]{
			{Subresource: strategy.View("status", "spec").WithMetaChecks(resource.CheckNeither),
				PrepareUpdate: parts.KeepSpec, ValidateUpdate: validatePodDisruptionBudgetStatus},
		},
	})
}

// reservedLabel is the label with which v1beta1 expressed selectors that match all pods or none.
const reservedLabel = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// dropReserved removes the requirements about reservedLabel from a selector that a client sends,
// unless the whole selector is the one that matches no pod.
func dropReserved(s *metav1.LabelSelector) {
	if s != nil && !equality.Semantic.DeepEqual(s, reserved(metav1.LabelSelectorOpExists)) {
		stripReserved(s)
	}
}

// reserved returns the selector whose only requirement is about reservedLabel. No pod has this label.
func reserved(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: reservedLabel, Operator: operator}}}
}

func stripReserved(s *metav1.LabelSelector) {
	s.MatchExpressions = slices.DeleteFunc(slices.Clone(s.MatchExpressions),
		func(e metav1.LabelSelectorRequirement) bool { return e.Key == reservedLabel })
}

// olderBudgets returns the form in which servers stored budgets of v1beta1. In this form, an empty
// selector matches no pod. In v1, it matches all pods.
func olderBudgets() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(policyv1beta1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
			func(_ *policyv1beta1.PodDisruptionBudget, out *policyv1.PodDisruptionBudget) {
				switch s := out.Spec.Selector; {
				case s == nil:
					// Matches no pod, as in v1.
				case equality.Semantic.DeepEqual(s, &metav1.LabelSelector{}):
					out.Spec.Selector = reserved(metav1.LabelSelectorOpExists)
				default:
					stripReserved(s) // leaves an empty selector if s is the one that matches all pods
				}
			}),
	}
}

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

const notSet = "N/A"

func podDisruptionBudgetCells(b *policyv1.PodDisruptionBudget, env resource.CellEnv) []any {
	available, unavailable := notSet, notSet
	if b.Spec.MinAvailable != nil {
		available = b.Spec.MinAvailable.String()
	}
	if b.Spec.MaxUnavailable != nil {
		unavailable = b.Spec.MaxUnavailable.String()
	}
	return []any{b.Name, available, unavailable, int64(b.Status.DisruptionsAllowed), env.Age(b.CreationTimestamp)}
}
