// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	nodev1 "k8s.io/api/node/v1"

	"keelson.dev/apiserver/resource"
)

func runtimeClassCells(c *nodev1.RuntimeClass, env resource.CellEnv) []any {
	return []any{c.Name, c.Handler, env.Age(c.CreationTimestamp)}
}
