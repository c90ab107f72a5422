// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import "slices"

// Hint is a set of NUMA nodes that can provide the requested amount of a resource.
type Hint struct {
	// Nodes is the set. It is empty if any node will do.
	Nodes Mask
	// Preferred reports whether no smaller set of nodes could be enough, even if all resources were
	// free.
	Preferred bool
}

// Hints are the hints of a provider by resource. A nil list means that the nodes do not matter for
// the resource. An empty list means that the request cannot be met.
type Hints map[string][]Hint

// MarkPreferred marks the hints that have as few nodes as could be enough if all resources were
// free. fewest is that number.
func MarkPreferred(hints []Hint, fewest int) []Hint {
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == fewest
	}
	return hints
}

// lists returns the hints of all providers, one list for each resource.
func lists(all []Hints) [][]Hint {
	var out [][]Hint
	for _, hints := range all {
		if len(hints) == 0 {
			out = append(out, []Hint{{Preferred: true}})
		}
		for _, list := range hints {
			switch {
			case list == nil:
				out = append(out, []Hint{{Preferred: true}})
			case len(list) == 0:
				out = append(out, []Hint{{}})
			default:
				out = append(out, list)
			}
		}
	}
	return out
}

// merger finds the hint that suits all providers best.
type merger struct {
	layout *Layout
	// closest means that, of sets with the same size, the set with the shortest distances between
	// its nodes is preferred.
	closest bool
	// wanted is the size of the smallest set that the most demanding resource needs.
	wanted int
	best   *Hint
}

// merge returns the best combination of one hint from each list. If there is none it returns the
// whole machine, not preferred.
func merge(l *Layout, closest bool, all [][]Hint) Hint {
	m := merger{layout: l, closest: closest}
	for _, list := range all {
		least := Mask(0)
		for _, h := range list {
			if h.Nodes != 0 && (least == 0 || h.Nodes.NarrowerThan(least)) {
				least = h.Nodes
			}
		}
		m.wanted = max(m.wanted, least.Count())
	}
	m.combine(all, Hint{Nodes: l.mask(), Preferred: true}, 0)
	if m.best == nil {
		return Hint{Nodes: l.mask()}
	}
	return *m.best
}

// combine tries all combinations. first is the set of nodes of the first hint in the combination
// that has nodes.
func (m *merger) combine(rest [][]Hint, sofar Hint, first Mask) {
	if len(rest) == 0 {
		if sofar.Nodes != 0 && (m.best == nil || m.better(sofar, *m.best)) {
			m.best = &sofar
		}
		return
	}
	for _, h := range rest[0] {
		next, one := sofar, first
		next.Preferred = next.Preferred && h.Preferred
		if h.Nodes != 0 {
			if one == 0 {
				one = h.Nodes
			}
			next.Nodes &= h.Nodes
			// The result is preferred only if all hints are and have the same nodes.
			next.Preferred = next.Preferred && h.Nodes == one
		}
		m.combine(rest[1:], next, one)
	}
}

// better reports whether a is better than b. A preferred hint is better than another one; among
// preferred hints the one with the fitter set is better; among other hints the one whose number of
// nodes is closest to wanted, preferably not larger.
func (m *merger) better(a, b Hint) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	sizeA, sizeB := a.Nodes.Count(), b.Nodes.Count()
	switch {
	case a.Preferred, sizeB > m.wanted, sizeA == sizeB:
		return m.fitter(a.Nodes, b.Nodes)
	case sizeB == m.wanted, sizeA > m.wanted:
		return false
	}
	return sizeA > sizeB
}

// fitter reports whether set a is better than b: it has fewer nodes, shorter distances if closest
// is set, or lower numbers.
func (m *merger) fitter(a, b Mask) bool {
	if m.closest && a.Count() == b.Count() {
		if x, y := m.layout.distance(a), m.layout.distance(b); x != y {
			return x < y
		}
	}
	return a.NarrowerThan(b)
}

// onlySingle removes hints that are not preferred or need more than one node.
func onlySingle(all [][]Hint) [][]Hint {
	out := make([][]Hint, 0, len(all))
	for _, list := range all {
		out = append(out, slices.DeleteFunc(slices.Clone(list), func(h Hint) bool {
			return !h.Preferred ||
				h.Nodes.Count() > 1
		}))
	}
	return out
}
