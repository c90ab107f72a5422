// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func leaseCells(l *coordinationv1.Lease, env resource.CellEnv) []any {
	return []any{l.Name, column.Deref(l.Spec.HolderIdentity, ""), env.Age(l.CreationTimestamp)}
}
