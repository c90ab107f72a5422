// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	policyv1 "k8s.io/api/policy/v1"

	"keelson.dev/apiserver/resource"
)

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
