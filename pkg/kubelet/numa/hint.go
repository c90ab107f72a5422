// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import "slices"

// Hint is a set of NUMA nodes that can provide the requested amount of a resource.
type Hint struct {
	// Nodes is the set. It is empty if the request can be met on any nodes.
	Nodes Mask
	// Preferred reports whether the set is as small as possible: no smaller set could be enough
	// even if all resources were free.
	Preferred bool
}

// Hints are the hints of one provider, by resource. A nil list means that any nodes will do for the
// resource. An empty list means that the request cannot be met.
type Hints map[string][]Hint

// MarkPreferred sets Preferred on the hints with exactly fewest nodes: the number that would be
// enough if all resources were free.
func MarkPreferred(hints []Hint, fewest int) []Hint {
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == fewest
	}
	return hints
}

// lists returns the hints (sets of NUMA nodes) of all providers as one list for each resource.
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

// merger finds the combination of hints (sets of NUMA nodes) that suits all providers best.
type merger struct {
	layout *Layout
	// closest makes the merger prefer, among sets of the same size, the one with the shortest
	// distances between its nodes.
	closest bool
	// wanted is how many nodes the best combination should have. Each resource has a hint with the
	// fewest nodes; wanted is the largest number of nodes in one of these hints.
	wanted int
	best   *Hint
}

// merge combines one hint from each list and returns the best combination. If no combination has
// common nodes, it returns all nodes of the machine with Preferred false.
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

// combine tries all combinations of one hint from each list in rest. The argument sofar combines
// the hints that were chosen from the earlier lists. The argument first is the set of nodes of the
// first chosen hint that has any nodes.
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
			// The combination is preferred only if all its hints are preferred and have the same
			// nodes.
			next.Preferred = next.Preferred && h.Nodes == one
		}
		m.combine(rest[1:], next, one)
	}
}

// better reports whether a is better than b. A preferred hint is better than one that is not. Among
// preferred hints, the fitter set is better. Among other hints, the set whose size is closest to
// wanted is better, if possible without exceeding it.
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

// fitter reports whether set a is better than b. The set with fewer nodes is better. Among sets of
// one size it is the one with shorter distances if m.closest is set, and then the one with lower
// node numbers.
func (m *merger) fitter(a, b Mask) bool {
	if m.closest && a.Count() == b.Count() {
		if x, y := m.layout.distance(a), m.layout.distance(b); x != y {
			return x < y
		}
	}
	return a.NarrowerThan(b)
}

// onlySingle returns only the preferred hints with at most one NUMA node.
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
