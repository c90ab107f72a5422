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
	f := &filter{view: view, pod: pod}
	for _, h := range heldAbout(view, scheduling.RequiredAnti, pod) {
		f.existing = append(f.existing, holding(view, scheduling.RequiredAnti, h))
	}
	for i := range own.Required {
		f.near = append(f.near, matched(view, own.Required, own.Required[i].TopologyKey))
	}
	for i := range own.RequiredAnti {
		f.apart = append(f.apart, matched(view, own.RequiredAnti[i:i+1], own.RequiredAnti[i].TopologyKey))
	}
	if len(f.existing)+len(f.near)+len(f.apart) == 0 && !f.view.Repelled() {
		return nil, nil
	}
	f.watch()
	return f, nil
}

// filter implements scheduling.Adjustable and scheduling.Indexed.
type filter struct {
	view     scheduling.View
	pod      *scheduling.Pod
	near     []*tally // pods all required affinity terms match, by the key of each
	apart    []*tally // pods a required anti-affinity term matches
	existing []*tally // pods whose anti-affinity is about the incoming one
	self     bool     // the required affinity terms match the pod itself
	// all are the tallies, each once.
	all map[*tally]struct{}
	met map[string]bool // terms that meet has made a tally of
}

func (f *filter) watch() {
	required := f.pod.Group.Affinity.Required
	f.self = len(required) > 0
	for i := range required {
		f.self = f.self && f.means(&required[i])
	}
	f.all = map[*tally]struct{}{}
	for _, ts := range [][]*tally{f.near, f.apart, f.existing} {
		for _, t := range ts {
			f.all[t] = struct{}{}
		}
	}
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
	present, any := true, false
	for _, t := range f.near {
		d := t.topology.Of[index]
		if d == scheduling.NoDomain {
			return false
		}
		present = present && t.counts[d] > 0
		any = any || t.nonzero > 0
	}
	// The first of pods that want to be near each other may go anywhere.
	return present || f.self && !any
}

// Adjust implements scheduling.Adjuster.
func (f *filter) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	f.meet(pod.Group)
	for t := range f.all {
		t.Adjust(n, pod, d)
	}
}

// means tells whether a term is about the incoming pod.
func (f *filter) means(t *scheduling.Term) bool {
	return t.Matches(f.pod.Namespace, labels.Set(f.pod.Labels), f.view.NamespaceLabels)
}

// meet makes tallies of terms about the incoming pod that only pods have which
// are not on nodes yet.
func (f *filter) meet(g *scheduling.Group) {
	for i := range g.Affinity.RequiredAnti {
		term := &g.Affinity.RequiredAnti[i]
		if f.view.Held(scheduling.RequiredAnti)[term.Key] != nil || f.met[term.Key] || !f.means(term) {
			continue
		}
		if f.met == nil {
			f.met = map[string]bool{}
		}
		f.met[term.Key] = true
		t := newTally(f.view, term.TopologyKey, holders(scheduling.RequiredAnti, term.Key))
		f.existing = append(f.existing, t)
		f.all[t] = struct{}{}
	}
}
