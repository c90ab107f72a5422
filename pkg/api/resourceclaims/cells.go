// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func resourceClaimCells(c *resourcev1.ResourceClaim, env resource.CellEnv) []any {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	if c.Status.Allocation != nil {
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	} else if c.DeletionTimestamp == nil {
		states = append(states, "pending")
	}
	return []any{c.Name, strings.Join(states, ","), env.Age(c.CreationTimestamp)}
}

func resourceSliceCells(s *resourcev1.ResourceSlice, env resource.CellEnv) []any {
	return []any{s.Name, column.Deref(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name, env.Age(s.CreationTimestamp)}
}

func deviceClassCells(o *resourcev1.DeviceClass, env resource.CellEnv) []any {
	return []any{o.Name, env.Age(o.CreationTimestamp)}
}

func resourceClaimTemplateCells(o *resourcev1.ResourceClaimTemplate, env resource.CellEnv) []any {
	return []any{o.Name, env.Age(o.CreationTimestamp)}
}
