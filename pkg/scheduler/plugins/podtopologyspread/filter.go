// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtopologyspread spreads pods over domains (zones, hosts): it
// rejects nodes where a DoNotSchedule constraint would be skewed too far, and
// prefers those that even out ScheduleAnyway ones, the cell's default
// constraints among them.
package podtopologyspread

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "PodTopologySpread"

const reasonSkew = "node(s) didn't match pod topology spread constraints"

var (
	skewed     = &scheduling.Status{Code: scheduling.Unschedulable, Plugin: Name, Reasons: []string{reasonSkew}}
	noTopology = &scheduling.Status{
		Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{reasonSkew + " (missing required label)"},
	}
)

// Plugin implements scheduling.FilterPlugin and scheduling.ScorePlugin.
type Plugin struct {
	// Defaults hold for pods without constraints that belong to a Service or
	// controller.
	Defaults []v1.TopologySpreadConstraint
	// SystemDefaulted says that Defaults are the built-in ones, which do not ask
	// nodes to have all topology labels.
	SystemDefaulted bool
}

var (
	_ scheduling.FilterPlugin = (*Plugin)(nil)
	_ scheduling.ScorePlugin  = (*Plugin)(nil)
)

// SystemDefaults are the constraints of pods that state none.
func SystemDefaults() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{
		{TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 3},
		{TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 5},
	}
}

// Name implements scheduling.Plugin.
func (*Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (*Plugin) Scope() scheduling.Scope { return scheduling.CellScope }

// Events implements scheduling.FilterPlugin.
func (*Plugin) Events() scheduling.Event {
	return scheduling.NodeAdded | scheduling.NodeLabelsChanged | scheduling.NodeTaintsChanged |
		scheduling.PodAdded | scheduling.PodRemoved
}

// constraints returns the pod's own constraints, or the defaults with the
// selectors of what the pod belongs to.
func (p *Plugin) constraints(view scheduling.View, pod *v1.Pod, action v1.UnsatisfiableConstraintAction) (cs []constraint, own bool) {
	if len(pod.Spec.TopologySpreadConstraints) > 0 {
		return compile(pod, pod.Spec.TopologySpreadConstraints, action), true
	}
	cs = compile(pod, p.Defaults, action)
	if len(cs) == 0 {
		return nil, false
	}
	selector := view.Selectors(pod)
	if selector == nil || selector.Empty() {
		return nil, false
	}
	for i := range cs {
		cs[i].selector = selector
	}
	return cs, false
}

// Compile implements scheduling.FilterPlugin.
func (p *Plugin) Compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	cs, _ := p.constraints(view, pod.Pod, v1.DoNotSchedule)
	if len(cs) == 0 {
		return nil, nil
	}
	f := &filter{self: make([]int, len(cs))}
	f.counts = view.Keep(keyOf("filter", pod.Pod, cs, true), func() scheduling.Lasting {
		c := &counts{namespace: pod.Namespace}
		include := newInclusion(pod.Pod)
		for i := range cs {
			c.tallies = append(c.tallies, newTally(view, &cs[i], func(n *scheduling.Node) bool {
				return hasAllKeys(n, cs) && include.counts(&cs[i], n)
			}))
		}
		c.fill(view)
		return c
	}).(*counts)
	for i := range cs {
		if cs[i].selector.Matches(labels.Set(pod.Labels)) {
			f.self[i] = 1
		}
	}
	return f, nil
}

// filter implements scheduling.Adjustable and scheduling.Indexed.
type filter struct {
	*counts
	self []int // 1 when a constraint selects the incoming pod itself
}

// Filter implements scheduling.Filter.
func (f *filter) Filter(n *scheduling.Node) *scheduling.Status { return f.FilterAt(n.Index) }

// FilterAt implements scheduling.Indexed.
func (f *filter) FilterAt(index int) *scheduling.Status {
	for i, t := range f.tallies {
		d := t.topology.Of[index]
		if d == scheduling.NoDomain {
			return noTopology
		}
		if t.pods[d]+f.self[i]-t.fewest() > t.maxSkew {
			return skewed
		}
	}
	return nil
}
