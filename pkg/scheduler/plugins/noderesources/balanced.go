// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesources

import (
	"math"

	"keelson.dev/scheduling"
)

// BalancedName is the name of Balanced in configuration, logs and metrics.
const BalancedName = "NodeResourcesBalancedAllocation"

// Balanced implements scheduling.ScorePlugin: it prefers nodes whose resources
// would be used more evenly with the pod than without. Pods without requests
// are indifferent to it.
type Balanced struct{ Resources []Resource }

var _ scheduling.ScorePlugin = (*Balanced)(nil)

// Name implements scheduling.Plugin.
func (*Balanced) Name() string { return BalancedName }

// ScoreScope implements scheduling.ScorePlugin.
func (*Balanced) ScoreScope() scheduling.Scope { return scheduling.NodeScope }

// CompileScore implements scheduling.ScorePlugin.
func (b *Balanced) CompileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	for _, r := range b.Resources {
		if pod.Requests.Get(r.Name) != 0 {
			return &balancedScorer{b.Resources, pod.Requests}
		}
	}
	return nil
}

type balancedScorer struct {
	resources []Resource
	req       scheduling.Resources
}

func (s *balancedScorer) Score(n *scheduling.Node) int64 {
	with := s.evenness(n, true)
	without := s.evenness(n, false)
	const half = scheduling.MaxNodeScore / 2
	return half + (half+with-without)/2
}

// evenness is (1 - standard deviation of the used fractions) in score units.
func (s *balancedScorer) evenness(n *scheduling.Node, withPod bool) int64 {
	var buf [8]float64
	fractions := buf[:0]
	var total float64
	for _, r := range s.resources {
		capacity := n.Allocatable.Get(r.Name)
		if capacity == 0 {
			continue
		}
		used := n.Requested.Get(r.Name)
		if withPod {
			used += s.req.Get(r.Name)
		}
		f := min(float64(used)/float64(capacity), 1)
		fractions = append(fractions, f)
		total += f
	}
	var deviation float64
	switch len(fractions) {
	case 0, 1:
	case 2:
		deviation = math.Abs(fractions[0]-fractions[1]) / 2
	default:
		mean := total / float64(len(fractions))
		var sum float64
		for _, f := range fractions {
			sum += (f - mean) * (f - mean)
		}
		deviation = math.Sqrt(sum / float64(len(fractions)))
	}
	return int64((1 - deviation) * scheduling.MaxNodeScore)
}

func (*balancedScorer) Normalize([]int32, []int64) {}

// Normalization implements scheduling.Usual.
func (*balancedScorer) Normalization() scheduling.Normalization { return scheduling.AsIs }
