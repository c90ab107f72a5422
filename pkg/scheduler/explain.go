// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"

	"keelson.dev/scheduling"
)

// Explanation is the evaluation of all nodes for one pod.
type Explanation struct {
	// Rejected is set if a plugin rejected all nodes at once. In that case Nodes is empty.
	Rejected *Objection `json:"rejected,omitempty"`
	// Nodes lists first the nodes that the pod fits, the best node first, and then the other nodes,
	// sorted by name.
	Nodes []NodeExplanation `json:"nodes,omitempty"`
}

// Objection is the reason why a plugin rejects one node or all nodes.
type Objection struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// Resolvable is true if the pod may fit after other pods are removed.
	Resolvable bool `json:"resolvable,omitempty"`
}

// NodeExplanation is the evaluation of one node.
type NodeExplanation struct {
	Node string `json:"node"`
	// Objection is the first objection to the node, or nil if the pod fits. Others has the
	// objections of the other plugins.
	Objection *Objection  `json:"objection,omitempty"`
	Others    []Objection `json:"others,omitempty"`
	// Total is the sum of the weighted scores. Total and Scores are set only if the pod fits the
	// node.
	Total  int64         `json:"total,omitempty"`
	Scores []PluginScore `json:"scores,omitempty"`
}

// PluginScore is the score that a plugin gives a node, from 0 to 100, and its weight.
type PluginScore struct {
	Plugin string `json:"plugin"`
	Score  int64  `json:"score"`
	Weight int64  `json:"weight"`
}

func objection(st *scheduling.Status) *Objection {
	if st == nil {
		return nil
	}
	return &Objection{Plugin: st.Plugin, Reasons: st.Reasons, Resolvable: st.Code == scheduling.Unschedulable}
}

// explain converts the evaluation to an Explanation, with the nodes in their final order.
func (e *evaluation) explain() *Explanation {
	if e.reject == nil && e.statuses == nil {
		e.filterAll()
	}
	if e.reject != nil {
		return &Explanation{Rejected: objection(e.reject)}
	}
	nodes := e.view.Nodes()
	out := &Explanation{Nodes: make([]NodeExplanation, len(nodes))}
	for i, n := range nodes {
		out.Nodes[i] = NodeExplanation{Node: n.Name, Objection: objection(e.statuses[i])}
	}
	feasible := e.feasible()
	for j, total := range e.totals(feasible) {
		out.Nodes[feasible[j]].Total = total
	}
	e.scoreEach(feasible, func(plugin string, weight int64, scores []int64) {
		for j, i := range feasible {
			n := &out.Nodes[i]
			n.Scores = append(n.Scores, PluginScore{plugin, scores[j], weight})
		}
	})
	slices.SortFunc(out.Nodes, func(a, b NodeExplanation) int {
		if fa, fb := a.Objection == nil, b.Objection == nil; fa != fb {
			if fa {
				return -1
			}
			return 1
		}
		return cmp.Or(-cmp.Compare(a.Total, b.Total), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// addOthers fills Others: for each rejected node it calls all filters, and adds the objections of
// the plugins besides the first.
func (e *evaluation) addOthers(x *Explanation) {
	filters := append(append([]scheduling.Filter{}, e.class.filters...), e.cell...)
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if n.Objection == nil {
			continue
		}
		node := e.view.NodeByName(n.Node)
		for j := range filters {
			if st := check(&filters[j], node); st != nil && st.Plugin != n.Objection.Plugin {
				n.Others = append(n.Others, *objection(st))
			}
		}
	}
}

// scoreEach calls f once for each scorer, with the normalized scores of the feasible nodes.
func (e *evaluation) scoreEach(feasible []int32, f func(plugin string, weight int64, scores []int64)) {
	scores := make([]int64, len(feasible))
	for i := range e.class.scorers {
		s := &e.class.scorers[i]
		for j, n := range feasible {
			scores[j] = e.class.raw[i][n]
		}
		s.normalize(feasible, scores)
		f(s.plugin, s.weight, scores)
	}
	for i := range e.scorers {
		s := &e.scorers[i]
		e.scoreCell(s, feasible, scores)
		f(s.plugin, s.weight, scores)
	}
}
