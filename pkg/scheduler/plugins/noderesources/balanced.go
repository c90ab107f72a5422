// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesources

import (
	"math"

	"keelson.dev/scheduling"
)

// BalancedName is the name of Balanced in configuration, logs and metrics.
const BalancedName = "NodeResourcesBalancedAllocation"

// Balanced prefers nodes whose resources would be used more evenly with the pod than without it. It
// gives all nodes the same score for pods without requests.
type Balanced struct{ Resources []Resource }

// Plugin returns the plugin. The caller must not change b afterwards.
func (b *Balanced) Plugin() scheduling.Plugin {
	return scheduling.Plugin{
		Name: BalancedName, Score: &scheduling.ScorePoint{Scope: scheduling.NodeScope, Compile: b.compile},
	}
}

func (b *Balanced) compile(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	for _, r := range b.Resources {
		if pod.Requests.Get(r.Name) != 0 {
			s := &balancedScorer{b.Resources, pod.Requests}
			return scheduling.Scorer{Score: s.score, Normalization: scheduling.AsIs}
		}
	}
	return scheduling.Scorer{}
}

type balancedScorer struct {
	resources []Resource
	req       scheduling.Resources
}

func (s *balancedScorer) score(n *scheduling.Node) int64 {
	with := s.evenness(n, true)
	without := s.evenness(n, false)
	const half = scheduling.MaxNodeScore / 2
	return half + (half+with-without)/2
}

// evenness returns 1 minus the standard deviation of the used fractions of the node's resources,
// scaled to scores (0 to 100).
func (s *balancedScorer) evenness(n *scheduling.Node, withPod bool) int64 {
	var buf [8]float64
	fractions := buf[:0]
	var total float64
	for _, r := range s.resources {
		capacity := n.Allocatable.Get(r.Name)
		if capacity <= 0 {
			continue
		}
		used := float64(n.Requested.Get(r.Name))
		if withPod {
			used += float64(s.req.Get(r.Name))
		}
		f := min(used/float64(capacity), 1)
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
