// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtopologyspread

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

// ScoreScope implements scheduling.ScorePlugin.
func (*Plugin) ScoreScope() scheduling.Scope { return scheduling.CellScope }

// CompileScore implements scheduling.ScorePlugin.
func (p *Plugin) CompileScore(view scheduling.View, pod *scheduling.Pod, feasible []*scheduling.Node) scheduling.Scorer {
	cs, own := p.constraints(view, pod.Pod, v1.ScheduleAnyway)
	if len(cs) == 0 {
		return nil
	}
	s := &scorer{constraints: cs, ignored: map[*scheduling.Node]bool{}}
	needAll := own || !p.SystemDefaulted
	for range cs {
		s.counts = append(s.counts, map[string]int64{})
		s.onNode = append(s.onNode, map[*scheduling.Node]int64{})
	}
	s.collectDomains(feasible, needAll)
	include := newInclusion(pod.Pod)
	for i := range cs {
		c := &cs[i]
		matching(view, c, pod.Namespace, func(n *scheduling.Node, pods int) {
			if c.key == v1.LabelHostname {
				s.onNode[i][n] += int64(pods)
				return
			}
			if needAll && !hasAllKeys(n, cs) || !include.counts(c, n) {
				return
			}
			if value := n.Labels[c.key]; hasKey(s.counts[i], value) {
				s.counts[i][value] += int64(pods)
			}
		})
	}
	return s
}

// collectDomains finds the domains of the feasible nodes and how much each
// constraint weighs: the more domains, the more one pod too many matters.
func (s *scorer) collectDomains(feasible []*scheduling.Node, needAll bool) {
	for _, n := range feasible {
		if needAll && !hasAllKeys(n, s.constraints) {
			s.ignored[n] = true
			continue
		}
		for i := range s.constraints {
			if key := s.constraints[i].key; key != v1.LabelHostname {
				s.counts[i][n.Labels[key]] += 0
			}
		}
	}
	for i := range s.constraints {
		size := len(s.counts[i])
		if s.constraints[i].key == v1.LabelHostname {
			size = len(feasible) - len(s.ignored)
		}
		s.weights = append(s.weights, math.Log(float64(size+2)))
	}
}

func hasKey(m map[string]int64, key string) bool {
	_, ok := m[key]
	return ok
}

type scorer struct {
	constraints []constraint
	weights     []float64
	counts      []map[string]int64           // pods by domain, by constraint
	onNode      []map[*scheduling.Node]int64 // pods by node, of hostname constraints
	ignored     map[*scheduling.Node]bool
}

// Score is the weighted number of matching pods in the node's domains.
func (s *scorer) Score(n *scheduling.Node) int64 {
	if s.ignored[n] {
		return 0
	}
	var score float64
	for i := range s.constraints {
		c := &s.constraints[i]
		value, ok := n.Labels[c.key]
		if !ok {
			continue
		}
		pods := s.counts[i][value]
		if c.key == v1.LabelHostname {
			pods = s.onNode[i][n]
		}
		score += float64(pods)*s.weights[i] + float64(c.maxSkew-1)
	}
	return int64(math.Round(score))
}

// Normalize prefers the fewest.
func (s *scorer) Normalize(nodes []*scheduling.Node, scores []int64) {
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i, n := range nodes {
		if s.ignored[n] {
			continue
		}
		lowest, highest = min(lowest, scores[i]), max(highest, scores[i])
	}
	for i, n := range nodes {
		switch {
		case s.ignored[n]:
			scores[i] = 0
		case highest == 0:
			scores[i] = scheduling.MaxNodeScore
		default:
			scores[i] = scheduling.MaxNodeScore * (highest + lowest - scores[i]) / highest
		}
	}
}
