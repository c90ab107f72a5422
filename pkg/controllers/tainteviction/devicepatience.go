// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// evictAt returns the time at which a pod must be deleted because of the taints of its devices.
// leaves is false if the pod may stay.
func (c *devices) evictAt(pod *v1.Pod) (at time.Time, leaves bool) {
	var first deadline
	for _, claim := range c.usedBy(pod) {
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			end, ends := endOf(c.taintsFor(r.Driver, r.Pool, r.Device), r.Tolerations, c.Clock.Now())
			if ends {
				first.add(end)
			}
		}
	}
	return first.at, first.set
}

// endOf returns the time at which the first of a device's NoExecute taints is no longer tolerated.
// ends is false if all are tolerated forever. A taint without a time counts as if it were added
// now.
func endOf(taints []resourcev1.DeviceTaint, tolerations []resourcev1.DeviceToleration,
	now time.Time) (end time.Time, ends bool) {
	var first deadline
	for _, t := range taints {
		if t.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		limit, forever := devicePatience(t, tolerations)
		if forever {
			continue
		}
		begun := now
		if t.TimeAdded != nil {
			begun = t.TimeAdded.Time
		}
		first.add(begun.Add(limit))
	}
	return first.at, first.set
}

// devicePatience returns how long a taint is tolerated: the shortest time of the tolerations that match,
// or 0 if none matches. forever is true if one of them has no time limit.
func devicePatience(t resourcev1.DeviceTaint,
	tolerations []resourcev1.DeviceToleration) (limit time.Duration, forever bool) {
	tolerated := false
	for _, tol := range tolerations {
		if tol.Effect != resourcev1.DeviceTaintEffectNoExecute || !resourceclaim.ToleratesTaint(tol, t) {
			continue
		}
		if tol.TolerationSeconds == nil {
			return 0, true
		}
		if d := limitOf(*tol.TolerationSeconds); !tolerated || d < limit {
			limit, tolerated = d, true
		}
	}
	return limit, false
}
