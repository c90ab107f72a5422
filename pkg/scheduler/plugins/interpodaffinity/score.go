// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package interpodaffinity

import (
	"math"

	"keelson.dev/scheduling"
)

// scorer sums up the weights of a node's domains.
type scorer struct {
	keys    []string // topology keys that carry any weight
	weights tally
}

func newScorer(weights tally) *scorer {
	s := &scorer{weights: weights}
	seen := map[string]bool{}
	for d := range weights {
		if !seen[d.key] {
			seen[d.key] = true
			s.keys = append(s.keys, d.key)
		}
	}
	return s
}

// Score implements scheduling.Scorer.
func (s *scorer) Score(n *scheduling.Node) int64 {
	var sum int64
	for _, key := range s.keys {
		if value, ok := n.Labels[key]; ok {
			sum += s.weights[domain{key, value}]
		}
	}
	return sum
}

// Normalize stretches the scores between the lowest and the highest.
func (s *scorer) Normalize(_ []*scheduling.Node, scores []int64) {
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range scores {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	for i, v := range scores {
		if highest == lowest {
			scores[i] = 0
			continue
		}
		scores[i] = int64(scheduling.MaxNodeScore * (float64(v-lowest) / float64(highest-lowest)))
	}
}
