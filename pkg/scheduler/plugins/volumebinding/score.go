// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinding

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/scheduler/plugins/utilization"
	"keelson.dev/scheduling"
)

// CompileScore returns a function that compiles the scorer of a pod. The scorer ranks nodes by
// utilization: the storage that the pod's claims request, as a share of the capacity of the chosen
// volumes. If volumes are provisioned for all claims, it is the share of the capacity that the drivers
// publish.
func CompileScore(shape utilization.Shape) func(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
	return func(view scheduling.View, pod *scheduling.Pod) scheduling.Scorer {
		f, st := Compile(view, pod)
		if f == nil || st != nil || !f.scorable() {
			return scheduling.Scorer{}
		}
		return scheduling.Scorer{
			Score: func(n *scheduling.Node) int64 { return f.Plan(n).score(shape) }, Normalization: scheduling.AsIs,
		}
	}
}

// scorable reports whether the nodes can have different scores: a claim waits for its first consumer, and
// there are volumes for it or its driver publishes capacities.
func (f *Filter) scorable() bool {
	for _, claim := range f.waiting {
		class := f.view.Class(volume.GetPersistentVolumeClaimClass(claim))
		if class == nil {
			continue
		}
		if published, _ := f.view.Capacities(class.Provisioner, class.Name); len(published) > 0 ||
			len(f.view.AvailableVolumes(class.Name)) > 0 {
			return true
		}
	}
	return false
}

// amounts is how much storage of one StorageClass is requested, and how much capacity there is.
type amounts struct{ requested, capacity int64 }

// score returns the mean of the scores of the StorageClasses. If the plan binds existing volumes,
// volumes that are to be provisioned do not count.
func (p Plan) score(shape utilization.Shape) int64 {
	classes := map[string]amounts{}
	for _, m := range p.Bind {
		a := classes[m.Volume.Spec.StorageClassName]
		a.requested += value(m.Claim.Spec.Resources.Requests.Storage())
		a.capacity += value(m.Volume.Spec.Capacity.Storage())
		classes[m.Volume.Spec.StorageClassName] = a
	}
	for i, claim := range p.Provision {
		if p.Capacities[i] == nil || len(p.Bind) > 0 {
			continue
		}
		class := volume.GetPersistentVolumeClaimClass(claim)
		a := classes[class]
		a.requested += value(claim.Spec.Resources.Requests.Storage())
		a.capacity = value(p.Capacities[i].Capacity) // all claims of the class share it
		classes[class] = a
	}
	if len(classes) == 0 {
		return 0
	}
	var sum int64
	for _, a := range classes {
		used := int64(100)
		if a.capacity > 0 {
			used = utilization.Percent(a.requested, a.capacity)
		}
		sum += shape.Score(used)
	}
	return utilization.Mean(sum, int64(len(classes)))
}

// value returns a quantity, which may be nil, as a whole number.
func value(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}
