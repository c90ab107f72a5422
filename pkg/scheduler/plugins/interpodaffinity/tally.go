// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package interpodaffinity

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/scheduling"
)

// tally counts pods by the domains of one topology key. It implements scheduling.Tally.
type tally struct {
	topology *scheduling.Topology
	counts   []int64 // one count for each domain
	nonzero  int     // number of counts that are not zero
	// of returns how much one pod of a group adds to a count.
	of func(g *scheduling.Group) int64

	lastGroup *scheduling.Group // the group for which lastCount is the cached result
	lastCount int64
}

func newTally(view scheduling.View, key string, of func(g *scheduling.Group) int64) *tally {
	topology := view.Topology(key)
	return &tally{topology: topology, counts: make([]int64, topology.Domains), of: of}
}

func (t *tally) at(index int) int64 {
	if d := t.topology.Of[index]; d != scheduling.NoDomain {
		return t.counts[d]
	}
	return 0
}

// Adjust implements scheduling.Tally.
func (t *tally) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	if pod.Group != t.lastGroup {
		t.lastGroup, t.lastCount = pod.Group, t.of(pod.Group)
	}
	t.add(n.Index, t.lastCount*int64(d))
}

func (t *tally) add(index int, by int64) {
	d := t.topology.Of[index]
	if d == scheduling.NoDomain || by == 0 {
		return
	}
	before := t.counts[d]
	t.counts[d] += by
	switch {
	case before == 0:
		t.nonzero++
	case t.counts[d] == 0:
		t.nonzero--
	}
}

func (t *tally) fill(view scheduling.View) *tally {
	for g := range view.Groups() {
		if count := t.of(g); count != 0 {
			for n, pods := range g.Nodes {
				t.add(n.Index, count*int64(pods))
			}
		}
	}
	return t
}

// matched returns the tally of the pods that all of the terms select, by the domains of the
// topology key.
func matched(view scheduling.View, terms []scheduling.Term, key string) *tally {
	var name strings.Builder
	fmt.Fprintf(&name, "%s matched %q", Name, key)
	for i := range terms {
		name.WriteString(" " + terms[i].Key)
	}
	return scheduling.Keep(view, name.String(), func() *tally {
		return newTally(view, key, func(g *scheduling.Group) int64 {
			for i := range terms {
				if !terms[i].Matches(g.Namespace, g.Labels, view.NamespaceLabels) {
					return 0
				}
			}
			return 1
		}).fill(view)
	})
}

// holding returns the tally of the pods that have the affinity term h, which is of the given kind.
func holding(view scheduling.View, kind scheduling.TermKind, h *scheduling.HeldTerm) *tally {
	key := h.Term.Key
	return scheduling.Keep(view, fmt.Sprintf("%s holding %d %s", Name, kind, key), func() *tally {
		t := newTally(view, h.Term.TopologyKey, holders(kind, key))
		for n, times := range h.Nodes {
			t.add(n.Index, int64(times))
		}
		return t
	})
}

// holders returns a function that returns how often pods of a group have the term with the given
// key.
func holders(kind scheduling.TermKind, key string) func(g *scheduling.Group) int64 {
	return func(g *scheduling.Group) int64 {
		count := int64(0)
		terms := g.Affinity.Of(kind)
		for i := range terms {
			if terms[i].Key == key {
				count++
			}
		}
		return count
	}
}

// heldAbout returns the affinity terms of the given kind that pods on nodes have and that select
// the incoming pod.
func heldAbout(view scheduling.View, kind scheduling.TermKind, pod *scheduling.Pod) []*scheduling.HeldTerm {
	var out []*scheduling.HeldTerm
	for _, h := range view.Held(kind) {
		if h.Term.Matches(pod.Namespace, labels.Set(pod.Labels), view.NamespaceLabels) {
			out = append(out, h)
		}
	}
	return out
}
