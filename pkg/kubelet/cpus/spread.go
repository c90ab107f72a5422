// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"maps"
	"math"

	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// share is a way to spread CPUs over nodes. Each node gives an equal part. The nodes in rest then
// give one more group each, in turn, until the needed number is reached.
type share struct {
	nodes, rest []int
	// balance is how unevenly the CPUs that are left are distributed over nodes; less is better.
	balance float64
}

// spreader spreads a number of CPUs, in groups, over as few nodes as possible.
type spreader struct {
	free          map[int]int // number of free CPUs, by node
	order         []int       // order of the nodes
	needed, group int
}

// spread takes the same number of CPUs from each of as few nodes as possible, so that the CPUs that
// are left are balanced best. If CPUs cannot be spread it packs them.
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

// even returns how many CPUs each node gives at least, given the number of nodes.
func (s *spreader) even(nodes int) int { return s.needed / nodes / s.group * s.group }

// best returns the best share over a number of nodes, or nil.
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

// over returns the best share over these nodes, or nil if they do not have enough CPUs.
func (s *spreader) over(nodes []int) *share {
	left, groups := map[int]int{}, 0
	for _, n := range s.order {
		left[n] = s.free[n]
	}
	var more []int // nodes that can give one more group
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

// hand takes groups from nodes in turn, and reports whether the nodes had enough CPUs.
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

// takeShare takes the CPUs of a share.
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
