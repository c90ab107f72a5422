// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"maps"
	"math"

	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// share describes how CPUs are spread over NUMA nodes. Every node in nodes provides the same number
// of CPUs. The nodes in rest then provide one more group of CPUs each, in turn, until the needed
// number is reached.
type share struct {
	nodes, rest []int
	// balance is the standard deviation of the numbers of CPUs that remain free on the nodes. A
	// lower value is better.
	balance float64
}

// spreader spreads CPUs over as few NUMA nodes as possible. It takes CPUs in groups: a group is a
// whole core with the option FullCores, and otherwise one CPU.
type spreader struct {
	free          map[int]int // number of free CPUs, by node
	order         []int       // node IDs in the order in which they are considered
	needed, group int
}

// spread takes the same number of CPUs from each of as few NUMA nodes as possible. Among the
// possible nodes, it chooses those that leave the numbers of free CPUs most balanced. If the CPUs
// cannot be spread, it calls pack.
func spread(l *numa.Layout, o Options, free cpuset.CPUSet, needed int) (cpuset.CPUSet, error) {
	s := spreader{needed: needed, group: 1}
	if o.FullCores {
		s.group = len(l.CPUs) / l.Count(coreOf)
	}
	if needed%s.group != 0 {
		return pack(l, o, free, needed)
	}
	t := newTaker(l, o, free, needed)
	if needed > len(t.free) {
		return cpuset.New(), notEnough(needed, len(t.free))
	}
	s.free = counts(t.frees(), nodeOf)
	for _, c := range t.order(false) {
		if n := c.Node; len(s.order) == 0 || s.order[len(s.order)-1] != n {
			s.order = append(s.order, n)
		}
	}
	perNode := ceil(ceil(len(l.CPUs), s.group), len(l.Nodes))
	groups := ceil(needed, s.group)
	for size := ceil(groups, perNode); size > 0 && size <= min(groups, len(s.order)); size++ {
		if best := s.best(size); best != nil {
			return s.takeShare(l, o, free, *best)
		}
	}
	return pack(l, o, free, needed)
}

func ceil(a, b int) int { return (a + b - 1) / b }

// even returns the number of CPUs that each node provides if CPUs are spread over this number of
// nodes, rounded down to whole groups.
func (s *spreader) even(nodes int) int { return s.needed / nodes / s.group * s.group }

// best returns the share with the lowest balance over any nodes of the given number, or nil if no
// set of that many nodes has enough CPUs.
func (s *spreader) best(size int) *share {
	var best *share
	numa.Combinations(s.order, size, func(nodes []int) bool {
		if one := s.over(nodes); one != nil && (best == nil || one.balance < best.balance) {
			best = one
		}
		return best == nil || best.balance > 0
	})
	return best
}

// over returns the share with the lowest balance over exactly these nodes, or nil if they do not
// have enough CPUs.
func (s *spreader) over(nodes []int) *share {
	left, groups := map[int]int{}, 0
	for _, n := range s.order {
		left[n] = s.free[n]
	}
	var more []int // nodes that can provide one more group
	for _, n := range nodes {
		groups += s.free[n] / s.group
		if left[n] -= s.even(len(nodes)); left[n] < 0 {
			return nil
		}
		if left[n] >= s.group {
			more = append(more, n)
		}
	}
	if groups*s.group < s.needed {
		return nil
	}
	rest := s.needed - s.even(len(nodes))*len(nodes)
	if rest == 0 {
		return &share{nodes: nodes, balance: deviation(left)}
	}
	var best *share
	for size := len(more); size > 0; size-- {
		numa.Combinations(more, size, func(some []int) bool {
			after := maps.Clone(left)
			if s.hand(rest, some, after) {
				if b := deviation(after); best == nil || b < best.balance {
					best = &share{nodes: nodes, rest: some, balance: b}
				}
			}
			return true
		})
	}
	return best
}

// hand takes one group of CPUs from each node in turn, until it has taken the given number of CPUs.
// left holds how many CPUs each node still has; hand subtracts the taken ones. It reports whether
// the nodes had enough CPUs.
func (s *spreader) hand(rest int, nodes []int, left map[int]int) bool {
	for rest > 0 {
		before := rest
		for _, n := range nodes {
			if rest > 0 && left[n] >= s.group {
				left[n] -= s.group
				rest -= s.group
			}
		}
		if rest == before {
			return false
		}
	}
	return true
}

// takeShare takes the CPUs that a share describes.
func (s *spreader) takeShare(l *numa.Layout, o Options, free cpuset.CPUSet, how share) (cpuset.CPUSet, error) {
	amount, left := map[int]int{}, map[int]int{}
	for _, n := range how.nodes {
		amount[n] = s.even(len(how.nodes))
		left[n] = s.free[n] - amount[n]
	}
	before := maps.Clone(left)
	s.hand(s.needed-s.even(len(how.nodes))*len(how.nodes), how.rest, left)
	out := cpuset.New()
	for _, n := range how.nodes {
		some, err := pack(l, o, free.Intersection(l.CPUsOf(numa.MaskOf(n))), amount[n]+before[n]-left[n])
		if err != nil {
			return cpuset.New(), err
		}
		out = out.Union(some)
	}
	return out, nil
}

// deviation returns the standard deviation of the numbers.
func deviation(of map[int]int) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range of {
		sum += float64(n)
	}
	mean := sum / float64(len(of))
	for _, n := range of {
		squares += (float64(n) - mean) * (float64(n) - mean)
	}
	return math.Round(math.Sqrt(squares/float64(len(of)))*1000) / 1000
}
