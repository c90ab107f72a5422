// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math/rand/v2"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// evaluation is one pod's view of the cell.
type evaluation struct {
	view    scheduling.View
	profile *profile.Profile
	pod     *scheduling.Pod
	class   *class
	cell    []scheduling.Filter // compiled CellScope filters

	nominated nominations

	// reject is set when a plugin rejected the pod on all nodes.
	reject *scheduling.Status
	// statuses has each node's objection by index; nil: the pod fits.
	statuses []*scheduling.Status
	feasible []*scheduling.Node
}

func evaluate(view scheduling.View, p *profile.Profile, pod *scheduling.Pod, cs *classes, noms nominations) (*evaluation, error) {
	e := &evaluation{view: view, profile: p, pod: pod, nominated: noms}
	var err error
	if e.class, err = cs.get(view, p, pod); err != nil {
		return nil, err
	}
	if e.reject = e.class.reject; e.reject != nil {
		return e, nil
	}
	for _, plugin := range p.CellFilters {
		f, st := plugin.Compile(view, pod)
		if st != nil {
			e.reject = st
			return e, nil
		}
		if f != nil {
			e.cell = append(e.cell, f)
		}
	}
	if e.nominatedNodeFits() {
		return e, nil
	}
	e.filterAll()
	return e, nil
}

// nominatedNodeFits tries the node that was cleared for the pod before all others.
func (e *evaluation) nominatedNodeFits() bool {
	name := e.pod.Status.NominatedNodeName
	if name == "" {
		return false
	}
	n := e.view.NodeByName(name)
	if n == nil || e.filter(n) != nil {
		return false
	}
	e.feasible = []*scheduling.Node{n}
	return true
}

func (e *evaluation) filterAll() {
	nodes := e.view.Nodes()
	e.statuses = make([]*scheduling.Status, len(nodes))
	for i, n := range nodes {
		if st := e.filter(n); st != nil {
			e.statuses[i] = st
		} else {
			e.feasible = append(e.feasible, n)
		}
	}
}

// filter judges one node. Pods of at least the same priority that are nominated
// to the node may come or not: the pod must fit either way.
func (e *evaluation) filter(n *scheduling.Node) *scheduling.Status {
	if st := e.class.filter(n); st != nil {
		return st
	}
	if st := first(e.cell, n); st != nil {
		return st
	}
	expected := e.nominated.on(n.Name, e.pod)
	if len(expected) == 0 {
		return nil
	}
	t := e.trial(n)
	defer t.end()
	for _, p := range expected {
		t.adjust(p, 1)
	}
	return t.fits()
}

// best scores the feasible nodes and returns the best; among equals it takes one at random.
func (e *evaluation) best(r *rand.Rand) *scheduling.Node {
	if len(e.feasible) <= 1 {
		if len(e.feasible) == 0 {
			return nil
		}
		return e.feasible[0]
	}
	totals := e.totals()
	best, ties := 0, 1
	for i := 1; i < len(totals); i++ {
		switch {
		case totals[i] > totals[best]:
			best, ties = i, 1
		case totals[i] == totals[best]:
			if ties++; r.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return e.feasible[best]
}

// totals are the weighted sums of the normalized scores of the feasible nodes.
func (e *evaluation) totals() []int64 {
	totals := make([]int64, len(e.feasible))
	scores := make([]int64, len(e.feasible))
	add := func(s scheduling.Scorer, weight int64) {
		s.Normalize(e.feasible, scores)
		for i := range totals {
			totals[i] += weight * scores[i]
		}
	}
	for k := range e.class.scorers {
		for i, n := range e.feasible {
			scores[i] = e.class.scores(n)[k]
		}
		add(e.class.scorers[k].Scorer, e.class.scorers[k].weight)
	}
	for _, plugin := range e.profile.CellScores {
		s := plugin.CompileScore(e.view, e.pod, e.feasible)
		if s == nil {
			continue
		}
		for i, n := range e.feasible {
			scores[i] = s.Score(n)
		}
		add(s, plugin.Weight)
	}
	return totals
}
