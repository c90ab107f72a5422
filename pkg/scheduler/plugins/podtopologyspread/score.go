// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtopologyspread

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

func (c Config) compileScore(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	cs, own := c.constraints(view, pod.Pod, v1.ScheduleAnyway)
	if len(cs) == 0 {
		return scheduling.Scorer{}
	}
	needAll := own || !c.SystemDefaulted
	s := scheduling.Keep(view, keyOf("score", pod.Pod, cs, needAll), func() *scorer {
		return newScorer(view, pod.Pod, cs, needAll)
	})
	return scheduling.Scorer{ScoreAt: s.scoreAt, Normalize: s.normalize, Prepare: s.prepare}
}

func newScorer(view scheduling.View, pod *v1.Pod, cs []constraint, needAll bool) *scorer {
	nodes := view.Nodes()
	s := &scorer{counts: counts{namespace: pod.Namespace}, weights: make([]float64, len(cs))}
	if needAll {
		s.ignored = make([]bool, len(nodes))
		for i, n := range nodes {
			s.ignored[i] = !hasAllKeys(n, cs)
		}
	}
	include := newInclusion(pod)
	for i := range cs {
		c := &cs[i]
		// For the hostname key, all matching pods count. For other keys, only pods on nodes that
		// the constraint's inclusion policies include count.
		counts := func(n *scheduling.Node) bool { return include.counts(c, n) && !s.ignores(n.Index) }
		if c.key == v1.LabelHostname {
			counts = func(*scheduling.Node) bool { return true }
		}
		s.tallies = append(s.tallies, newTally(view, c, counts))
	}
	s.perNode()
	s.fill(view)
	return s
}

// scorer scores nodes by a pod's ScheduleAnyway constraints. It is a scheduling.Tally, so that pods
// with the same constraints share it.
type scorer struct {
	counts
	ignored []bool // nodes that lack one of the topology keys, by node index; nil if no node is ignored
	weights []float64
	seen    []bool // which domains domainsOf has counted
}

func (s *scorer) ignores(index int) bool { return s.ignored != nil && s.ignored[index] }

// perNode makes each node a domain of its own for the hostname key, even if two nodes have the same
// hostname label.
func (s *scorer) perNode() {
	for _, t := range s.tallies {
		if t.key != v1.LabelHostname {
			continue
		}
		own := &scheduling.Topology{Key: t.key, Of: make([]int32, len(t.topology.Of)), Domains: len(t.topology.Of)}
		for i, d := range t.topology.Of {
			own.Of[i] = scheduling.NoDomain
			if d != scheduling.NoDomain {
				own.Of[i] = int32(i) // there are fewer than 2^31 nodes
			}
		}
		t.topology, t.pods, t.exists = own, make([]int, own.Domains), make([]int, own.Domains)
	}
}

// prepare computes the weight of each constraint, as Kubernetes does. It grows with the number of
// domains that the feasible nodes are in: the more domains, the fewer pods are in each, so that a
// single pod matters more.
func (s *scorer) prepare(feasible []int32) {
	considered := len(feasible)
	if s.ignored != nil {
		considered = 0
		for _, i := range feasible {
			if !s.ignored[i] {
				considered++
			}
		}
	}
	for k, t := range s.tallies {
		size := considered
		if t.key != v1.LabelHostname {
			size = s.domainsOf(t, feasible)
		}
		s.weights[k] = math.Log(float64(size + 2))
	}
}

// domainsOf returns the number of domains that the feasible nodes are in. All nodes without the
// label together count as one domain.
func (s *scorer) domainsOf(t *tally, feasible []int32) int {
	if cap(s.seen) <= t.topology.Domains {
		s.seen = make([]bool, t.topology.Domains+1)
	}
	seen := s.seen[:t.topology.Domains+1]
	clear(seen)
	size := 0
	for _, i := range feasible {
		if s.ignores(int(i)) {
			continue
		}
		if d := t.topology.Of[i] + 1; !seen[d] {
			seen[d] = true
			size++
		}
	}
	return size
}

// scoreAt returns the node's raw score: the weighted number of matching pods in the node's domains, plus
// maxSkew-1 of each constraint.
func (s *scorer) scoreAt(index int) int64 {
	if s.ignores(index) {
		return 0
	}
	var score float64
	for k, t := range s.tallies {
		if d := t.topology.Of[index]; d != scheduling.NoDomain {
			score += float64(t.pods[d])*s.weights[k] + float64(t.maxSkew-1)
		}
	}
	return int64(math.Round(score))
}

// normalize maps raw scores so that nodes with the fewest matching pods get the highest score.
func (s *scorer) normalize(nodes []int32, scores []int64) {
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i, v := range scores {
		if !s.ignores(int(nodes[i])) {
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	for i, v := range scores {
		switch {
		case s.ignores(int(nodes[i])):
			scores[i] = 0
		case highest == 0:
			scores[i] = scheduling.MaxNodeScore
		default:
			scores[i] = scheduling.MaxNodeScore * (highest + lowest - v) / highest
		}
	}
}
