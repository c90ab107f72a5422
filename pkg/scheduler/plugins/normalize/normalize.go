// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package normalize brings raw scores of plugins into 0..MaxNodeScore.
package normalize

import "keelson.dev/scheduling"

// Max scales scores so that the largest becomes MaxNodeScore; reverse turns
// them round, so that the largest raw score becomes 0.
func Max(scores []int64, reverse bool) {
	var highest int64
	for _, s := range scores {
		highest = max(highest, s)
	}
	for i := range scores {
		switch {
		case highest == 0 && reverse:
			scores[i] = scheduling.MaxNodeScore
		case highest == 0:
			scores[i] = 0
		case reverse:
			scores[i] = scheduling.MaxNodeScore - scores[i]*scheduling.MaxNodeScore/highest
		default:
			scores[i] = scores[i] * scheduling.MaxNodeScore / highest
		}
	}
}
