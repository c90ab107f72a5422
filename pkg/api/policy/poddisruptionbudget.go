// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	policyv1 "k8s.io/api/policy/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// podDisruptionBudgetRow declares poddisruptionbudgets.
func podDisruptionBudgetRow() *resource.Row {
	parts := strategy.Parts[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetSpec, policyv1.PodDisruptionBudgetStatus](func(o *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudgetSpec, *policyv1.PodDisruptionBudgetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList]{
		Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Namespaced: true,
		ShortNames: []string{"pdb"},

		PrepareCreate: parts.Create,
		PrepareUpdate: parts.Update,
		ResetFields:   []string{"status"},

		Subresources: []resource.Sub[policyv1.PodDisruptionBudget]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
