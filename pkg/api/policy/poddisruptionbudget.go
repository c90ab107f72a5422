// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// podDisruptionBudgetRow declares poddisruptionbudgets.
func podDisruptionBudgetRow() *resource.Row {
	parts := strategy.Parts[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetSpec, policyv1.PodDisruptionBudgetStatus](func(o *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[policyv1.PodDisruptionBudgetList](resource.Kind[*policyv1.PodDisruptionBudget]{
		Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Namespaced: true,
		ShortNames: []string{"pdb"},

		MetaOnUpdate:   resource.MetaRules{SkipUpdateChecks: true},
		PrepareCreate:  parts.Create,
		ValidateName:   report.SegmentName,
		AnyFinalizer:   true,
		MetaLast:       true,
		Validate:       validatePodDisruptionBudget,
		PrepareUpdate:  parts.Update,
		ValidateUpdate: validatePodDisruptionBudgetUpdate,
		ResetFields:    []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Min Available", Type: "string", Description: "The minimum number of pods that must be available."},
			{Name: "Max Unavailable", Type: "string", Description: "The maximum number of pods that may be unavailable."},
			{Name: "Allowed Disruptions", Type: "integer", Description: "Calculated number of pods that may be disrupted at this time."},
			column.Age(),
		},
		Cells: podDisruptionBudgetCells,

		Subresources: []resource.Sub[*policyv1.PodDisruptionBudget]{
			{Subresource: strategy.View("status", "spec").WithMetaRules(resource.MetaRules{SkipUpdateChecks: true}), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validatePodDisruptionBudgetStatus},
		},
	})
}
