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

// Compile implements scheduling.FilterPlugin.
func (*Plugin) Compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	own := &pod.Group.Affinity
	constrained := len(own.Required)+len(own.RequiredAnti) > 0
	if !constrained && len(view.AffinityGroups()) == 0 {
		return nil, nil
	}
	f := &filter{view: view, namespace: pod.Namespace, labels: pod.Labels, affinity: own}
	f.self, _ = f.selects(pod.Namespace, pod.Labels)
	for i := range own.Required {
		f.near.of(view, own.Required[i].TopologyKey)
	}
	for i := range own.RequiredAnti {
		f.apart.of(view, own.RequiredAnti[i].TopologyKey)
	}
	groups := view.AffinityGroups()
	if constrained {
		groups = view.Groups()
	}
	for g := range groups {
		counted := f.counted(g)
		if len(counted) == 0 {
			continue
		}
		for n, pods := range g.Nodes {
			for _, t := range counted {
				t.add(n.Index, int64(pods))
			}
		}
	}
	return f, nil
}

// filter implements scheduling.Adjustable, scheduling.Indexed and scheduling.Lasting.
type filter struct {
	view      scheduling.View
	namespace string
	labels    labels.Set
	affinity  *scheduling.Affinity
	self      bool // the required affinity terms match the pod itself

	near     tallies // pods all required affinity terms match
	apart    tallies // pods a required anti-affinity term matches
	existing tallies // pods whose anti-affinity matches the incoming one

	lastGroup *scheduling.Group // a memory of counted
	lastTally []*tally
}

// counted returns the tallies in which a pod of g counts, once for each time.
func (f *filter) counted(g *scheduling.Group) []*tally {
	if g == f.lastGroup {
		return f.lastTally
	}
	var out []*tally
	for i := range g.Affinity.RequiredAnti {
		t := &g.Affinity.RequiredAnti[i]
		if t.Matches(f.namespace, f.labels, f.view.NamespaceLabels) {
			out = append(out, f.existing.of(f.view, t.TopologyKey))
		}
	}
	near, apart := f.selects(g.Namespace, g.Labels)
	if near {
		for i := range f.affinity.Required {
			out = append(out, f.near.of(f.view, f.affinity.Required[i].TopologyKey))
		}
	}
	for _, key := range apart {
		out = append(out, f.apart.of(f.view, key))
	}
	f.lastGroup, f.lastTally = g, out
	return out
}

// selects tells whether all affinity terms match a pod with these labels, and
// the topology keys of the anti-affinity terms that do.
func (f *filter) selects(namespace string, podLabels labels.Set) (near bool, apart []string) {
	near = len(f.affinity.Required) > 0
	for i := range f.affinity.Required {
		near = near && f.affinity.Required[i].Matches(namespace, podLabels, f.view.NamespaceLabels)
	}
	for i := range f.affinity.RequiredAnti {
		if t := &f.affinity.RequiredAnti[i]; t.Matches(namespace, podLabels, f.view.NamespaceLabels) {
			apart = append(apart, t.TopologyKey)
		}
	}
	return near, apart
}

// Filter implements scheduling.Filter.
func (f *filter) Filter(n *scheduling.Node) *scheduling.Status { return f.FilterAt(n.Index) }

// FilterAt implements scheduling.Indexed.
func (f *filter) FilterAt(index int) *scheduling.Status {
	if len(f.near) > 0 && !f.nearEnough(index) {
		return noAffinity
	}
	for _, t := range f.apart {
		if t.at(index) > 0 {
			return antiAffinity
		}
	}
	for _, t := range f.existing {
		if t.at(index) > 0 {
			return existingAnti
		}
	}
	return nil
}

func (f *filter) nearEnough(index int) bool {
	present := true
	for _, t := range f.near {
		d := t.topology.Of[index]
		if d == scheduling.NoDomain {
			return false
		}
		present = present && t.counts[d] > 0
	}
	// The first of pods that want to be near each other may go anywhere.
	return present || f.self && f.near.empty()
}

// Adjust implements scheduling.Adjuster.
func (f *filter) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	for _, t := range f.counted(pod.Group) {
		t.add(n.Index, int64(d))
	}
}

// Idle implements scheduling.Lasting.
func (f *filter) Idle() bool { return len(f.near) == 0 && f.apart.empty() && f.existing.empty() }
