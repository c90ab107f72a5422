// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math"
	"math/rand/v2"
)

// excluded is the total of a node that the pod does not fit.
const excluded = math.MinInt64

// ranking finds the nodes with the highest total score. It is a binary tree whose leaves are the
// nodes. Each inner vertex has the highest total of the leaves below it, and the number of leaves
// with that total. A change of one total costs time logarithmic in the number of nodes.
type ranking struct {
	size    int // number of leaves, a power of two
	highest []int64
	count   []int32
}

func newRanking(nodes int) ranking {
	size := 1
	for size < nodes {
		size *= 2
	}
	r := ranking{size: size, highest: make([]int64, 2*size), count: make([]int32, 2*size)}
	for i := range r.highest {
		r.highest[i] = excluded
	}
	return r
}

// set changes the total of one node.
func (r *ranking) set(node int, total int64) {
	i := r.put(node, total)
	for i /= 2; i >= 1; i /= 2 {
		r.sum(i)
	}
}

// put changes the total of a leaf without updating the inner vertices. After all changes, the
// caller must update them, for example with rebuild. The result is the index of the leaf.
func (r *ranking) put(node int, total int64) int {
	i := r.size + node
	r.highest[i], r.count[i] = total, 1
	if total == excluded {
		r.count[i] = 0
	}
	return i
}

func (r *ranking) rebuild() {
	for i := r.size - 1; i >= 1; i-- {
		r.sum(i)
	}
}

func (r *ranking) sum(i int) {
	a, b := 2*i, 2*i+1
	switch {
	case r.highest[a] > r.highest[b]:
		r.highest[i], r.count[i] = r.highest[a], r.count[a]
	case r.highest[a] < r.highest[b]:
		r.highest[i], r.count[i] = r.highest[b], r.count[b]
	default:
		r.highest[i], r.count[i] = r.highest[a], r.count[a]+r.count[b]
	}
}

// total returns the total of a node.
func (r *ranking) total(node int) int64 { return r.highest[r.size+node] }

// best returns one of the nodes with the highest total, each with the same probability, or -1 if
// the pod fits no node.
func (r *ranking) best(rnd *rand.Rand) int {
	if r.count[1] == 0 {
		return -1
	}
	k := int32(0)
	if r.count[1] > 1 {
		k = rnd.Int32N(r.count[1])
	}
	i, top := 1, r.highest[1]
	for i < r.size {
		i *= 2
		if r.highest[i] != top {
			i++
			continue
		}
		if k >= r.count[i] {
			k -= r.count[i]
			i++
		}
	}
	return i - r.size
}
