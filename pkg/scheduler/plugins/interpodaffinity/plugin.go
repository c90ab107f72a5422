// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interpodaffinity places pods near other pods or away from them. It filters by the
// required affinity terms of the incoming pod and of pods on nodes. It scores by preferred terms, and by
// the required affinity terms of pods on nodes.
//
// Pods with equal labels and terms form a group (scheduling.Group). A term is matched once for each
// group, and the pods are counted by topology domain.
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

// Config is the plugin's configuration.
type Config struct {
	// HardWeight is the weight, in scores, of a required affinity term of a pod on a node that
	// selects the incoming pod. If it is 0, such terms do not affect scores.
	HardWeight int64
	// IgnoreExistingPreferred makes scores ignore the preferred terms of pods on nodes, if the
	// incoming pod has no preferred term itself.
	IgnoreExistingPreferred bool
}

// New returns the plugin.
func New(c Config) scheduling.Plugin {
	return scheduling.Plugin{
		Name: Name,
		Filter: &scheduling.FilterPoint{
			Scope: scheduling.CellScope, Compile: compileFilter,
			Events: scheduling.NodeAdded | scheduling.NodeLabelsChanged | scheduling.PodAdded |
				scheduling.PodRemoved | scheduling.NamespaceChanged,
		},
		Score: &scheduling.ScorePoint{Scope: scheduling.CellScope, Compile: c.compileScore},
	}
}

func compileFilter(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
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
		return scheduling.Filter{}, nil
	}
	f.watch()
	return scheduling.Filter{CheckAt: f.checkAt, Adjust: f.adjust}, nil
}

type filter struct {
	view     scheduling.View
	pod      *scheduling.Pod
	near     []*tally // for each required affinity term, pods that all these terms select, by the term's topology key
	apart    []*tally // for each required anti-affinity term of the pod, pods that the term selects
	existing []*tally // pods on nodes whose required anti-affinity terms select the incoming pod
	self     bool     // the required affinity terms select the incoming pod itself
	// all has each of the tallies above once.
	all map[*tally]struct{}
	met map[string]bool // keys of the terms for which the method meet has added a tally
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

func (f *filter) checkAt(index int) *scheduling.Status {
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
	present, counted := true, false
	for _, t := range f.near {
		d := t.topology.Of[index]
		if d == scheduling.NoDomain {
			return false
		}
		present = present && t.counts[d] > 0
		counted = counted || t.nonzero > 0
	}
	// No pod matches the terms yet. A pod that its own terms select is then accepted anywhere,
	// because otherwise the first of several such pods could never be placed.
	return present || f.self && !counted
}

func (f *filter) adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	f.meet(pod.Group)
	for t := range f.all {
		t.Adjust(n, pod, d)
	}
}

// means reports whether an affinity term selects the pod that is being scheduled.
func (f *filter) means(t *scheduling.Term) bool {
	return t.Matches(f.pod.Namespace, labels.Set(f.pod.Labels), f.view.NamespaceLabels)
}

// meet adds a tally for each required anti-affinity term of group g that selects the incoming pod.
// It skips terms of pods on nodes, because compileFilter has already counted them.
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
