// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func priorityClassCells(c *schedulingv1.PriorityClass, env resource.CellEnv) []any {
	return []any{c.Name, int64(c.Value), c.GlobalDefault, env.Age(c.CreationTimestamp), column.Deref(c.PreemptionPolicy, "")}
}
