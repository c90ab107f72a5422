// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package interpodaffinity

import (
	"math"

	"keelson.dev/scheduling"
)

func (c Config) compileScore(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	own := &pod.Group.Affinity
	if c.IgnoreExistingPreferred && len(own.Preferred)+len(own.PreferredAnti) == 0 {
		return scheduling.Scorer{}
	}
	var s scorer
	for i := range own.Preferred {
		s = s.with(matched(view, own.Preferred[i:i+1], own.Preferred[i].TopologyKey), own.Preferred[i].Weight)
	}
	for i := range own.PreferredAnti {
		s = s.with(matched(view, own.PreferredAnti[i:i+1], own.PreferredAnti[i].TopologyKey), -own.PreferredAnti[i].Weight)
	}
	for _, h := range heldAbout(view, scheduling.Preferred, pod) {
		s = s.with(holding(view, scheduling.Preferred, h), h.Term.Weight)
	}
	for _, h := range heldAbout(view, scheduling.PreferredAnti, pod) {
		s = s.with(holding(view, scheduling.PreferredAnti, h), -h.Term.Weight)
	}
	if c.HardWeight > 0 {
		for _, h := range heldAbout(view, scheduling.Required, pod) {
			s = s.with(holding(view, scheduling.Required, h), c.HardWeight)
		}
	}
	if len(s) == 0 {
		return scheduling.Scorer{}
	}
	return scheduling.Scorer{ScoreAt: s.scoreAt, Normalize: stretch}
}

// scorer scores a node by the weighted sum of its tallies (counts of pods by topology domain), in
// the node's domains.
type scorer []weighted

type weighted struct {
	*tally
	weight int64
}

// with returns s with the tally t (the counts of pods by topology domain) added, unless all counts
// of t are 0.
func (s scorer) with(t *tally, weight int64) scorer {
	if t.nonzero == 0 {
		return s
	}
	return append(s, weighted{t, weight})
}

func (s scorer) scoreAt(index int) int64 {
	var sum int64
	for i := range s {
		sum += s[i].weight * s[i].at(index)
	}
	return sum
}

// stretch scales scores linearly, so that the lowest becomes 0 and the highest MaxNodeScore.
func stretch(_ []int32, scores []int64) {
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
