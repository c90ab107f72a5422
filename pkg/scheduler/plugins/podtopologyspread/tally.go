// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtopologyspread

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

// tally counts the pods that one constraint selects, by topology domain.
type tally struct {
	*constraint
	topology *scheduling.Topology
	// counted has, for each node by its index, whether pods on the node count.
	counted []bool
	pods    []int // number of selected pods, by index of the domain
	exists  []int // number of nodes whose pods count, by index of the domain
	domains int   // number of domains that have a node whose pods count

	lowest int
	stale  bool // lowest must be computed again before use
}

func newTally(view scheduling.View, c *constraint, counts func(*scheduling.Node) bool) *tally {
	topology := view.Topology(c.key)
	t := &tally{
		constraint: c, topology: topology, stale: true, counted: make([]bool, len(topology.Of)),
		pods: make([]int, topology.Domains), exists: make([]int, topology.Domains),
	}
	for i, n := range view.Nodes() {
		d := topology.Of[i]
		if d == scheduling.NoDomain || !counts(n) {
			continue
		}
		t.counted[i] = true
		if t.exists[d]++; t.exists[d] == 1 {
			t.domains++
		}
	}
	return t
}

// selects reports whether pods of group g count. An empty selector selects all pods; a missing
// selector selects no pod.
func (c *constraint) selects(g *scheduling.Group) bool {
	return !g.Terminating && c.selector.Matches(g.Labels)
}

// add adds d pods of the group g (pods that spread constraints treat alike) on the node with the
// given index to the counts.
func (t *tally) add(g *scheduling.Group, index, d int) {
	if t.counted[index] && t.selects(g) {
		t.pods[t.topology.Of[index]] += d
		t.stale = true
	}
}

// fewest returns the lowest number of pods in a domain, or 0 if there are fewer than minDomains
// domains. The skew of a domain is the difference between its number of pods and this number.
func (t *tally) fewest() int {
	if t.domains < t.minDomains {
		return 0
	}
	if !t.stale {
		return t.lowest
	}
	t.lowest, t.stale = math.MaxInt, false
	for d, pods := range t.pods {
		if t.exists[d] > 0 {
			t.lowest = min(t.lowest, pods)
		}
	}
	if t.lowest == math.MaxInt {
		t.lowest = 0
	}
	return t.lowest
}

// counts has the tallies of all constraints of a pod. It implements scheduling.Tally.
type counts struct {
	namespace string
	tallies   []*tally
}

// fill counts all pods that are on nodes in the tally.
func (c *counts) fill(view scheduling.View) {
	for g := range view.Groups() {
		if g.Namespace != c.namespace {
			continue
		}
		for _, t := range c.tallies {
			if !t.selects(g) {
				continue
			}
			for n, pods := range g.Nodes {
				if t.counted[n.Index] {
					t.pods[t.topology.Of[n.Index]] += pods
				}
			}
		}
	}
}

// Adjust implements scheduling.Tally.
func (c *counts) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	if pod.Namespace != c.namespace {
		return
	}
	for _, t := range c.tallies {
		t.add(pod.Group, n.Index, d)
	}
}

// keyOf returns a key that is equal for pods whose constraints count the same pods on the same
// nodes.
func keyOf(use string, pod *v1.Pod, cs []constraint, needAll bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %v %s", Name, use, needAll, pod.Namespace)
	tolerations, nodes := false, false
	for i := range cs {
		c := &cs[i]
		fmt.Fprintf(&b, " %q %d %d %v %v %q", c.key, c.maxSkew, c.minDomains, c.honorNodes, c.honorTaints, c.selector)
		tolerations, nodes = tolerations || c.honorTaints, nodes || c.honorNodes
	}
	var what []any
	if tolerations {
		what = append(what, pod.Spec.Tolerations)
	}
	if nodes {
		what = append(what, pod.Spec.NodeSelector)
		if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			what = append(what, a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	enc, err := json.Marshal(what)
	if err != nil {
		panic("podtopologyspread: encode key: " + err.Error())
	}
	b.Write(enc)
	return b.String()
}
