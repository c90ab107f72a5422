// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package interpodaffinity

import (
	"math"

	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/scheduling"
)

// ScoreScope implements scheduling.ScorePlugin.
func (*Plugin) ScoreScope() scheduling.Scope { return scheduling.CellScope }

// CompileScore implements scheduling.ScorePlugin.
func (p *Plugin) CompileScore(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	own := &pod.Group.Affinity
	hasOwn := len(own.Preferred)+len(own.PreferredAnti) > 0
	if p.IgnoreExistingPreferred && !hasOwn {
		return nil
	}
	groups := view.AffinityGroups()
	if hasOwn {
		groups = view.Groups()
	} else if len(groups) == 0 {
		return nil
	}
	s := &scorer{view: view, hardWeight: p.HardWeight, namespace: pod.Namespace, labels: pod.Labels, affinity: own}
	for g := range groups {
		weighed := s.weigh(g)
		if len(weighed) == 0 {
			continue
		}
		for n, pods := range g.Nodes {
			for _, w := range weighed {
				w.tally.add(n.Index, w.weight*int64(pods))
			}
		}
	}
	return s
}

// scorer sums up the weights of a node's domains. It implements
// scheduling.IndexedScorer and scheduling.Lasting.
type scorer struct {
	view       scheduling.View
	hardWeight int64
	namespace  string
	labels     labels.Set
	affinity   *scheduling.Affinity

	weights tallies

	lastGroup *scheduling.Group // a memory of weigh
	lastWeigh []weighted
}

type weighted struct {
	tally  *tally
	weight int64
}

// weigh returns what one pod of g counts, by topology key.
func (s *scorer) weigh(g *scheduling.Group) []weighted {
	if g == s.lastGroup {
		return s.lastWeigh
	}
	var out []weighted
	terms := func(terms []scheduling.Term, sign int64, namespace string, podLabels labels.Set) {
		for i := range terms {
			if t := &terms[i]; t.Matches(namespace, podLabels, s.view.NamespaceLabels) {
				out = append(out, weighted{s.weights.of(s.view, t.TopologyKey), sign * t.Weight})
			}
		}
	}
	terms(s.affinity.Preferred, 1, g.Namespace, g.Labels)
	terms(s.affinity.PreferredAnti, -1, g.Namespace, g.Labels)
	terms(g.Affinity.Preferred, 1, s.namespace, s.labels)
	terms(g.Affinity.PreferredAnti, -1, s.namespace, s.labels)
	if s.hardWeight > 0 {
		for i := range g.Affinity.Required {
			if t := &g.Affinity.Required[i]; t.Matches(s.namespace, s.labels, s.view.NamespaceLabels) {
				out = append(out, weighted{s.weights.of(s.view, t.TopologyKey), s.hardWeight})
			}
		}
	}
	s.lastGroup, s.lastWeigh = g, out
	return out
}

// Score implements scheduling.Scorer.
func (s *scorer) Score(n *scheduling.Node) int64 { return s.ScoreAt(n.Index) }

// ScoreAt implements scheduling.IndexedScorer.
func (s *scorer) ScoreAt(index int) int64 {
	var sum int64
	for _, t := range s.weights {
		sum += t.at(index)
	}
	return sum
}

// Adjust implements scheduling.Adjuster.
func (s *scorer) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	for _, w := range s.weigh(pod.Group) {
		w.tally.add(n.Index, w.weight*int64(d))
	}
}

// Idle implements scheduling.Lasting.
func (s *scorer) Idle() bool { return s.weights.empty() }

// Normalize stretches the scores between the lowest and the highest.
func (s *scorer) Normalize(_ []int32, scores []int64) {
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
