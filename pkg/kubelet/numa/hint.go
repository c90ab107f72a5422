// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import "slices"

// Hint is a set of nodes on which somebody could give what is asked for.
type Hint struct {
	// Nodes is empty for any.
	Nodes Mask
	// Preferred reports that no smaller set could ever do.
	Preferred bool
}

// Hints are those of a provider by resource. A resource with a nil list is one for
// which nodes do not matter; with an empty one it cannot be given at all.
type Hints map[string][]Hint

// Prefer marks the hints with the fewest nodes that could ever do.
func Prefer(hints []Hint, fewest int) []Hint {
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == fewest
	}
	return hints
}

// lists are the hints of all providers, a list for each resource.
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
	// closest prefers, of sets of one size, the one with the shortest ways.
	closest bool
	// wanted is the least size that the most demanding resource needs.
	wanted int
	best   *Hint
}

// merge is the best of all combinations of one hint of each list; the whole machine,
// not preferred, if there is none.
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

// combine goes through all combinations; first is the set of the first hint that has one.
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
			next.Preferred = next.Preferred && h.Nodes == one // all have to agree
		}
		m.combine(rest[1:], next, one)
	}
}

// better reports whether a is to take the place of b. A preferred hint is better than
// one that is not, and a fitter one is better than another of the kind; of two that are
// not preferred the one whose size comes nearer to what is wanted from below.
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

// fitter reports whether set a is to be had rather than b.
func (m *merger) fitter(a, b Mask) bool {
	if m.closest && a.Count() == b.Count() {
		if x, y := m.layout.distance(a), m.layout.distance(b); x != y {
			return x < y
		}
	}
	return a.NarrowerThan(b)
}

// onlySingle leaves of each list what is preferred and needs at most one node.
func onlySingle(all [][]Hint) [][]Hint {
	out := make([][]Hint, 0, len(all))
	for _, list := range all {
		out = append(out, slices.DeleteFunc(slices.Clone(list), func(h Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 }))
	}
	return out
}
