// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"keelson.dev/keelson/pkg/api/unset"
)

const (
	matchingPrecedence int32 = 1000
	concurrencyShares  int32 = 30
	queues             int32 = 64
	handSize           int32 = 8
	queueLength        int32 = 50
)

func defaultFlowSchema(s *flowcontrolv1.FlowSchema) {
	unset.Fill(&s.Spec.MatchingPrecedence, matchingPrecedence)
}

func defaultPriorityLevelConfiguration(c *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := c.Spec.Exempt; exempt != nil {
		unset.Point(&exempt.NominalConcurrencyShares, 0)
		unset.Point(&exempt.LendablePercent, 0)
	}
	limited := c.Spec.Limited
	if limited == nil {
		return
	}
	unset.Point(&limited.NominalConcurrencyShares, concurrencyShares)
	unset.Point(&limited.LendablePercent, 0)
	if q := limited.LimitResponse.Queuing; q != nil {
		unset.Fill(&q.HandSize, handSize)
		unset.Fill(&q.Queues, queues)
		unset.Fill(&q.QueueLengthLimit, queueLength)
	}
}
