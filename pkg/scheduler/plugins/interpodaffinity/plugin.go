// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interpodaffinity keeps pods near to, or apart from, other pods by the
// required terms of the pod and of the pods already there, and ranks nodes by
// the preferred ones.
//
// It works on groups of pods that are alike (scheduling.Group): a term is
// matched once for each group, and counted by topology domain.
package interpodaffinity

import (
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "InterPodAffinity"

var (
	noAffinity = &scheduling.Status{
		Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{"node(s) didn't match pod affinity rules"},
	}
	antiAffinity = &scheduling.Status{
		Code: scheduling.Unschedulable, Plugin: Name, Reasons: []string{"node(s) didn't match pod anti-affinity rules"},
	}
	existingAnti = &scheduling.Status{
		Code: scheduling.Unschedulable, Plugin: Name,
		Reasons: []string{"node(s) didn't satisfy existing pods anti-affinity rules"},
	}
)

// Plugin implements scheduling.FilterPlugin and scheduling.ScorePlugin.
type Plugin struct {
	// HardWeight is how much a required affinity term of a pod already there
	// counts for an incoming pod it matches.
	HardWeight int64
	// IgnoreExistingPreferred leaves preferred terms of pods already there out,
	// for incoming pods without any.
	IgnoreExistingPreferred bool
}

var (
	_ scheduling.FilterPlugin = (*Plugin)(nil)
	_ scheduling.ScorePlugin  = (*Plugin)(nil)
)

// Name implements scheduling.Plugin.
func (*Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (*Plugin) Scope() scheduling.Scope { return scheduling.CellScope }

// Events implements scheduling.FilterPlugin.
func (*Plugin) Events() scheduling.Event {
	return scheduling.NodeAdded | scheduling.NodeLabelsChanged | scheduling.PodAdded |
		scheduling.PodRemoved | scheduling.NamespaceChanged
}

// domain is one value of one topology key.
type domain struct{ key, value string }

// tally counts pods by domain.
type tally map[domain]int64

func (t tally) add(n *scheduling.Node, key string, by int64) {
	value, ok := n.Labels[key]
	if !ok {
		return
	}
	d := domain{key, value}
	if t[d] += by; t[d] == 0 {
		delete(t, d)
	}
}

// Compile implements scheduling.FilterPlugin.
func (*Plugin) Compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	f := &filter{
		pod: pod, affinity: &pod.Group.Affinity, namespaceLabels: view.NamespaceLabels,
		near: tally{}, apart: tally{}, existing: tally{},
	}
	for g := range view.AffinityGroups() {
		f.eachNode(view, g, func(n *scheduling.Node, pods int64) { f.countExisting(n, g, pods) })
	}
	if len(f.affinity.Required)+len(f.affinity.RequiredAnti) > 0 {
		for g := range view.Groups() {
			near, apart := f.selects(g.Namespace, g.Labels)
			if near || apart != nil {
				f.eachNode(view, g, func(n *scheduling.Node, pods int64) { f.countOwn(n, near, apart, pods) })
			}
		}
	} else if len(f.existing) == 0 {
		return nil, nil
	}
	return f, nil
}

type filter struct {
	pod             *scheduling.Pod
	affinity        *scheduling.Affinity
	namespaceLabels func(string) labels.Set
	near            tally // pods all required affinity terms match
	apart           tally // pods a required anti-affinity term matches
	existing        tally // pods whose anti-affinity matches the incoming one
}

func (*filter) eachNode(view scheduling.View, g *scheduling.Group, f func(*scheduling.Node, int64)) {
	for name, pods := range g.Nodes {
		if n := view.NodeByName(name); n != nil {
			f(n, int64(pods))
		}
	}
}

func (f *filter) countExisting(n *scheduling.Node, g *scheduling.Group, pods int64) {
	for i := range g.Affinity.RequiredAnti {
		t := &g.Affinity.RequiredAnti[i]
		if t.Matches(f.pod.Namespace, f.pod.Labels, f.namespaceLabels) {
			f.existing.add(n, t.TopologyKey, pods)
		}
	}
}

// selects tells whether all affinity terms match a pod with these labels, and
// the topology keys of the anti-affinity terms that do.
func (f *filter) selects(namespace string, podLabels labels.Set) (near bool, apart []string) {
	near = len(f.affinity.Required) > 0
	for i := range f.affinity.Required {
		near = near && f.affinity.Required[i].Matches(namespace, podLabels, f.namespaceLabels)
	}
	for i := range f.affinity.RequiredAnti {
		if t := &f.affinity.RequiredAnti[i]; t.Matches(namespace, podLabels, f.namespaceLabels) {
			apart = append(apart, t.TopologyKey)
		}
	}
	return near, apart
}

func (f *filter) countOwn(n *scheduling.Node, near bool, apart []string, pods int64) {
	if near {
		for i := range f.affinity.Required {
			f.near.add(n, f.affinity.Required[i].TopologyKey, pods)
		}
	}
	for _, key := range apart {
		f.apart.add(n, key, pods)
	}
}

// Filter implements scheduling.Filter.
func (f *filter) Filter(n *scheduling.Node) *scheduling.Status {
	if !f.nearEnough(n) {
		return noAffinity
	}
	for i := range f.affinity.RequiredAnti {
		key := f.affinity.RequiredAnti[i].TopologyKey
		if value, ok := n.Labels[key]; ok && f.apart[domain{key, value}] > 0 {
			return antiAffinity
		}
	}
	if len(f.existing) > 0 {
		for key, value := range n.Labels {
			if f.existing[domain{key, value}] > 0 {
				return existingAnti
			}
		}
	}
	return nil
}

func (f *filter) nearEnough(n *scheduling.Node) bool {
	present := true
	for i := range f.affinity.Required {
		key := f.affinity.Required[i].TopologyKey
		value, ok := n.Labels[key]
		if !ok {
			return false
		}
		present = present && f.near[domain{key, value}] > 0
	}
	if present {
		return true
	}
	// The first of pods that want to be near each other may go anywhere.
	if len(f.near) > 0 {
		return false
	}
	self, _ := f.selects(f.pod.Namespace, f.pod.Labels)
	return self
}

// Adjust implements scheduling.Adjustable.
func (f *filter) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	f.countExisting(n, pod.Group, int64(d))
	near, apart := f.selects(pod.Namespace, pod.Labels)
	f.countOwn(n, near, apart, int64(d))
}

// ScoreScope implements scheduling.ScorePlugin.
func (*Plugin) ScoreScope() scheduling.Scope { return scheduling.CellScope }

// CompileScore implements scheduling.ScorePlugin.
func (p *Plugin) CompileScore(view scheduling.View, pod *scheduling.Pod, _ []*scheduling.Node) scheduling.Scorer {
	own := &pod.Group.Affinity
	hasOwn := len(own.Preferred)+len(own.PreferredAnti) > 0
	if p.IgnoreExistingPreferred && !hasOwn {
		return nil
	}
	groups := view.AffinityGroups()
	if hasOwn {
		groups = view.Groups()
	}
	weights := tally{}
	for g := range groups {
		for _, w := range p.weigh(view, pod, g) {
			for name, pods := range g.Nodes {
				if n := view.NodeByName(name); n != nil {
					weights.add(n, w.key, w.weight*int64(pods))
				}
			}
		}
	}
	if len(weights) == 0 {
		return nil
	}
	return newScorer(weights)
}

type weighted struct {
	key    string
	weight int64
}

// weigh returns what one pod of g counts for pod, by topology key.
func (p *Plugin) weigh(view scheduling.View, pod *scheduling.Pod, g *scheduling.Group) []weighted {
	var out []weighted
	terms := func(terms []scheduling.Term, sign int64, namespace string, podLabels labels.Set) {
		for i := range terms {
			if t := &terms[i]; t.Matches(namespace, podLabels, view.NamespaceLabels) {
				out = append(out, weighted{t.TopologyKey, sign * t.Weight})
			}
		}
	}
	own := &pod.Group.Affinity
	terms(own.Preferred, 1, g.Namespace, g.Labels)
	terms(own.PreferredAnti, -1, g.Namespace, g.Labels)
	terms(g.Affinity.Preferred, 1, pod.Namespace, pod.Labels)
	terms(g.Affinity.PreferredAnti, -1, pod.Namespace, pod.Labels)
	if p.HardWeight > 0 {
		for i := range g.Affinity.Required {
			if t := &g.Affinity.Required[i]; t.Matches(pod.Namespace, pod.Labels, view.NamespaceLabels) {
				out = append(out, weighted{t.TopologyKey, p.HardWeight})
			}
		}
	}
	return out
}
