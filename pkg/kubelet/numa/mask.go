// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"math/bits"
	"slices"
)

// maxNode is the greatest number of a NUMA node that a Mask can hold.
const maxNode = 63

// Mask is a set of NUMA nodes.
type Mask uint64

// MaskOf returns the set of these NUMA nodes. It ignores node numbers outside 0 to maxNode.
func MaskOf(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		if n >= 0 && n <= maxNode {
			m |= 1 << n
		}
	}
	return m
}

// Count returns the number of NUMA nodes in the set.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether a NUMA node is in the set.
func (m Mask) Has(node int) bool { return m&MaskOf(node) != 0 }

// Nodes returns the NUMA nodes of the set, sorted.
func (m Mask) Nodes() []int {
	var out []int
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// NarrowerThan reports whether m has fewer nodes than o. For sets of the same size, it compares
// node numbers.
func (m Mask) NarrowerThan(o Mask) bool {
	if a, b := m.Count(), o.Count(); a != b {
		return a < b
	}
	return m < o
}

// Subsets returns the non-empty subsets of a set of NUMA nodes, smallest first.
func Subsets(nodes []int) []Mask {
	var out []Mask
	for size := 1; size <= len(nodes); size++ {
		Combinations(nodes, size, func(some []int) bool {
			out = append(out, MaskOf(some...))
			return true
		})
	}
	return out
}

// Combinations calls f with each choice of size elements of the list, in order, until f returns
// false. f may keep the slice that it gets.
func Combinations(list []int, size int, f func([]int) bool) {
	var choose func(from int, chosen []int) bool
	choose = func(from int, chosen []int) bool {
		if len(chosen) == size {
			return f(slices.Clone(chosen))
		}
		for i := from; i <= len(list)-(size-len(chosen)); i++ {
			if !choose(i+1, append(chosen, list[i])) {
				return false
			}
		}
		return true
	}
	if size > 0 {
		choose(0, nil)
	}
}
