// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func flowSchemaCells(s *flowcontrolv1.FlowSchema, env resource.CellEnv) []any {
	method := column.None
	if s.Spec.DistinguisherMethod != nil {
		method = string(s.Spec.DistinguisherMethod.Type)
	}
	dangling := "?"
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			dangling = string(c.Status)
			break
		}
	}
	return []any{
		s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, env.Age(s.CreationTimestamp), dangling,
	}
}

func priorityLevelConfigurationCells(c *flowcontrolv1.PriorityLevelConfiguration, env resource.CellEnv) []any {
	var shares, queues, hand, length any = column.None, column.None, column.None, column.None
	if limited := c.Spec.Limited; limited != nil {
		if limited.NominalConcurrencyShares != nil {
			shares = *limited.NominalConcurrencyShares
		}
		if q := limited.LimitResponse.Queuing; q != nil {
			queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
		}
	}
	return []any{c.Name, string(c.Spec.Type), shares, queues, hand, length, env.Age(c.CreationTimestamp)}
}
