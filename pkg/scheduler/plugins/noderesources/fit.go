// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package noderesources has the plugins for the resources of nodes. Fit rejects nodes with too few
// resources left, and prefers emptier or fuller nodes, as configured. Balanced prefers nodes whose
// resources would be used evenly.
package noderesources

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/utilization"
	"keelson.dev/scheduling"
)

// FitName is the name of Fit in configuration, logs and metrics.
const FitName = "NodeResourcesFit"

// Resource is a resource with its weight in a score.
type Resource struct {
	Name   v1.ResourceName
	Weight int64
}

// Strategy is the rule by which Fit scores nodes.
type Strategy string

// The strategies of Fit.
const (
	LeastAllocated Strategy = "LeastAllocated"
	MostAllocated  Strategy = "MostAllocated"
	// RequestedToCapacityRatio maps the utilization of a node to a score by a function that is
	// given by points (utilization.Shape). It rounds the mean of the resources, as Kubernetes does.
	RequestedToCapacityRatio Strategy = "RequestedToCapacityRatio"
)

// Fit rejects nodes with too little left of a resource, and scores the other nodes by Strategy.
type Fit struct {
	Strategy  Strategy
	Resources []Resource
	Shape     utilization.Shape // of RequestedToCapacityRatio
	// Ignored has names of resources that Fit does not check, because an extender manages them.
	// IgnoredGroups has name prefixes (before the slash) of such resources.
	Ignored, IgnoredGroups map[string]bool
}

// DefaultResources returns the resources that are scored if the configuration names none.
func DefaultResources() []Resource {
	return []Resource{{v1.ResourceCPU, 1}, {v1.ResourceMemory, 1}}
}

// Plugin returns the plugin. The caller must not change f afterwards.
func (f *Fit) Plugin() scheduling.Plugin {
	return scheduling.Plugin{
		Name: FitName,
		Filter: &scheduling.FilterPoint{
			Scope: scheduling.NodeScope, Compile: f.compileFilter,
			Events: scheduling.NodeAdded | scheduling.NodeResourcesGrown | scheduling.PodRemoved |
				scheduling.ClassesChanged,
		},
		Score: &scheduling.ScorePoint{Scope: scheduling.NodeScope, Compile: f.compileScore},
	}
}

func (f *Fit) compileFilter(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	req := pod.Requests
	scalars := make([]v1.ResourceName, 0, len(req.Scalar))
	for name, v := range req.Scalar {
		if v == 0 || f.ignores(name) {
			continue
		}
		scalars = append(scalars, name)
	}
	slices.Sort(scalars) // so that reasons always have the same order
	out := &fitFilter{req: req, scalars: scalars, statuses: map[objection]*scheduling.Status{}}
	if len(scalars) == 0 {
		return scheduling.Filter{Check: out.check}, nil
	}
	classed := &classedFilter{fitFilter: out, devices: view.Devices()}
	classed.update()
	return scheduling.Filter{Check: out.check, Version: classed.update}, nil
}

func (f *Fit) ignores(name v1.ResourceName) bool {
	if f.Ignored[string(name)] {
		return true
	}
	for i := range name {
		if name[i] == '/' {
			return f.IgnoredGroups[string(name[:i])]
		}
	}
	return false
}

type fitFilter struct {
	req     scheduling.Resources
	scalars []v1.ResourceName
	// elsewhere has the extended resources that device classes provide. Fit accepts nodes without
	// such a resource; the plugin DynamicResources checks their devices.
	elsewhere map[v1.ResourceName]bool
	statuses  map[objection]*scheduling.Status // cache of statuses, because many nodes share the same status
}

// classedFilter is the fitFilter of a pod that requests extended resources, which device classes
// may provide.
type classedFilter struct {
	*fitFilter
	devices scheduling.DeviceView
	version uint64
}

// update determines which of the requested resources a device class provides. It returns a number
// that changes whenever this set of resources changes.
func (f *classedFilter) update() uint64 {
	now := map[v1.ResourceName]bool{}
	for _, name := range f.scalars {
		if f.devices.ClassFor(name) != nil {
			now[name] = true
		}
	}
	if !maps.Equal(now, f.elsewhere) {
		f.elsewhere = now
		f.version++
	}
	return f.version
}

// objection is the set of resources that a node has too little of, as bits.
type objection struct {
	short        uint64
	unresolvable bool
}

// The bits of an objection. They are followed by one bit for each scalar resource of the pod.
const (
	shortPods = 1 << iota
	shortCPU
	shortMemory
	shortStorage
	shortScalar
)

const maxScalarBits = 56

// check rejects a node that has too little of a resource, and names all such resources. The status
// is unresolvable if the node would have too little even without other pods.
func (f *fitFilter) check(n *scheduling.Node) *scheduling.Status {
	var o objection
	if int64(len(n.Pods))+1 > n.Allocatable.Pods {
		o.short |= shortPods
	}
	short := func(bit uint64, want, has, used int64) {
		// This order of the comparisons avoids the difference has-used, which could overflow.
		if want > 0 && (want > has || used > has-want) {
			o.short |= bit
			o.unresolvable = o.unresolvable || want > has
		}
	}
	short(shortCPU, f.req.MilliCPU, n.Allocatable.MilliCPU, n.Requested.MilliCPU)
	short(shortMemory, f.req.Memory, n.Allocatable.Memory, n.Requested.Memory)
	short(shortStorage, f.req.EphemeralStorage, n.Allocatable.EphemeralStorage, n.Requested.EphemeralStorage)
	for i, name := range f.scalars {
		if f.elsewhere[name] && n.Allocatable.Scalar[name] <= 0 {
			continue
		}
		short(shortScalar<<min(i, maxScalarBits), f.req.Scalar[name], n.Allocatable.Scalar[name], n.Requested.Scalar[name])
	}
	if o.short == 0 {
		return nil
	}
	st := f.statuses[o]
	if st == nil {
		st = f.status(o)
		f.statuses[o] = st
	}
	return st
}

func (f *fitFilter) status(o objection) *scheduling.Status {
	st := &scheduling.Status{Code: scheduling.Unschedulable, Plugin: FitName}
	if o.unresolvable {
		st.Code = scheduling.Unresolvable
	}
	if o.short&shortPods != 0 {
		st.Reasons = append(st.Reasons, "Too many pods")
	}
	names := append([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, f.scalars...)
	for i, name := range names {
		if o.short&(shortCPU<<min(i, maxScalarBits+3)) != 0 {
			st.Reasons = append(st.Reasons, "Insufficient "+string(name))
		}
	}
	return st
}

func (f *Fit) compileScore(_ scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	s := &fitScorer{fit: f, req: pod.NonZero}
	return scheduling.Scorer{Score: s.score, Normalization: scheduling.AsIs}
}

type fitScorer struct {
	fit *Fit
	req scheduling.Resources
}

func (s *fitScorer) score(n *scheduling.Node) int64 {
	var sum, weights int64
	for _, r := range s.fit.Resources {
		capacity := n.Allocatable.Get(r.Name)
		want := s.req.Get(r.Name)
		if capacity <= 0 || want == 0 && r.Name != v1.ResourceCPU && r.Name != v1.ResourceMemory {
			continue
		}
		left := int64(0) // amount that would be left with the pod on the node
		if free := capacity - n.NonZero.Get(r.Name); free > want {
			left = free - want
		}
		score := s.fit.score(left, capacity)
		if s.fit.Strategy == RequestedToCapacityRatio && score == 0 {
			continue
		}
		sum += score * r.Weight
		weights += r.Weight
	}
	if weights == 0 {
		return 0
	}
	if s.fit.Strategy == RequestedToCapacityRatio {
		return utilization.Mean(sum, weights)
	}
	return sum / weights
}

// score returns the score of a node that would have the amount left of its capacity.
func (f *Fit) score(left, capacity int64) int64 {
	switch f.Strategy {
	case MostAllocated:
		return utilization.Percent(capacity-left, capacity)
	case RequestedToCapacityRatio:
		return f.Shape.Score(utilization.Percent(capacity-left, capacity))
	default:
		return utilization.Percent(left, capacity)
	}
}
