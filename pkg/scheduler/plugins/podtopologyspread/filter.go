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
	f := &filter{namespace: pod.Namespace, labels: pod.Labels, include: newInclusion(pod.Pod), constraints: cs}
	for i := range cs {
		f.domains = append(f.domains, f.count(view, &cs[i]))
	}
	return f, nil
}

type filter struct {
	namespace   string
	labels      labels.Set
	include     inclusion
	constraints []constraint
	domains     []map[string]int // pods of each domain, by constraint
}

func (f *filter) count(view scheduling.View, c *constraint) map[string]int {
	counts := map[string]int{}
	eligible := func(n *scheduling.Node) bool { return hasAllKeys(n, f.constraints) && f.include.counts(c, n) }
	for _, n := range view.Nodes() {
		if eligible(n) {
			counts[n.Labels[c.key]] += 0
		}
	}
	matching(view, c, f.namespace, func(n *scheduling.Node, pods int) {
		if eligible(n) {
			counts[n.Labels[c.key]] += pods
		}
	})
	return counts
}

// fewest is the global minimum that skew is measured against: 0 while there are
// fewer domains than minDomains.
func (f *filter) fewest(i int) int {
	if len(f.domains[i]) < f.constraints[i].minDomains {
		return 0
	}
	lowest, first := 0, true
	for _, pods := range f.domains[i] {
		if first || pods < lowest {
			lowest, first = pods, false
		}
	}
	return lowest
}

// Filter implements scheduling.Filter.
func (f *filter) Filter(n *scheduling.Node) *scheduling.Status {
	for i := range f.constraints {
		c := &f.constraints[i]
		value, ok := n.Labels[c.key]
		if !ok {
			return noTopology
		}
		self := 0
		if c.selector.Matches(f.labels) {
			self = 1
		}
		if f.domains[i][value]+self-f.fewest(i) > c.maxSkew {
			return skewed
		}
	}
	return nil
}

// Adjust implements scheduling.Adjustable.
func (f *filter) Adjust(n *scheduling.Node, pod *scheduling.Pod, d int) {
	if pod.Namespace != f.namespace || pod.DeletionTimestamp != nil || !hasAllKeys(n, f.constraints) {
		return
	}
	for i := range f.constraints {
		c := &f.constraints[i]
		if c.selector.Matches(labels.Set(pod.Labels)) && f.include.counts(c, n) {
			f.domains[i][n.Labels[c.key]] += d
		}
	}
}
