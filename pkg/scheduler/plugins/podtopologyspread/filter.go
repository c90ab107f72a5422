// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtopologyspread spreads pods over topology domains such as zones and hosts. It rejects
// nodes on which the pod would violate a DoNotSchedule constraint, and prefers nodes on which the
// pod satisfies ScheduleAnyway constraints best. Pods without constraints get default constraints.
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

// Config is the plugin's configuration.
type Config struct {
	// Defaults are the constraints for pods that have no constraints of their own and belong to a
	// Service or controller.
	Defaults []v1.TopologySpreadConstraint
	// SystemDefaulted is true if Defaults are the built-in constraints. These also count nodes that
	// lack one of the topology keys.
	SystemDefaulted bool
}

// SystemDefaults returns the built-in default constraints.
func SystemDefaults() []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{
		{TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 3},
		{TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway, MaxSkew: 5},
	}
}

// New returns the plugin.
func New(c Config) scheduling.Plugin {
	return scheduling.Plugin{
		Name: Name,
		Filter: &scheduling.FilterPoint{
			Scope: scheduling.CellScope, Compile: c.compileFilter,
			Events: scheduling.NodeAdded | scheduling.NodeLabelsChanged | scheduling.NodeTaintsChanged |
				scheduling.PodAdded | scheduling.PodRemoved,
		},
		Score: &scheduling.ScorePoint{Scope: scheduling.CellScope, Compile: c.compileScore},
	}
}

// constraints returns the pod's own constraints with the given action. If the pod has no
// constraints, it returns the default constraints with the selectors of the Services and controller
// that the pod belongs to. The result own is true for the pod's own constraints.
func (c Config) constraints(view scheduling.View, pod *v1.Pod,
	action v1.UnsatisfiableConstraintAction) (cs []constraint, own bool) {
	if len(pod.Spec.TopologySpreadConstraints) > 0 {
		return compile(pod, pod.Spec.TopologySpreadConstraints, action), true
	}
	cs = compile(pod, c.Defaults, action)
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

func (c Config) compileFilter(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	cs, _ := c.constraints(view, pod.Pod, v1.DoNotSchedule)
	if len(cs) == 0 {
		return scheduling.Filter{}, nil
	}
	f := &filter{self: make([]int, len(cs))}
	f.counts = scheduling.Keep(view, keyOf("filter", pod.Pod, cs, true), func() *counts {
		c := &counts{namespace: pod.Namespace}
		include := newInclusion(pod.Pod)
		for i := range cs {
			c.tallies = append(c.tallies, newTally(view, &cs[i], func(n *scheduling.Node) bool {
				return hasAllKeys(n, cs) && include.counts(&cs[i], n)
			}))
		}
		c.fill(view)
		return c
	})
	for i := range cs {
		if cs[i].selector.Matches(labels.Set(pod.Labels)) {
			f.self[i] = 1
		}
	}
	return scheduling.Filter{CheckAt: f.checkAt, Adjust: f.Adjust}, nil
}

type filter struct {
	*counts
	self []int // 1 if the constraint selects the incoming pod itself, otherwise 0; by constraint
}

func (f *filter) checkAt(index int) *scheduling.Status {
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
