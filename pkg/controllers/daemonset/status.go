// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// status returns the status of the DaemonSet, and the time until the number of available pods
// changes without an event. On each node it counts only the first pod. It updates
// observedGeneration only if acted is true, which means that the plan was carried out.
func status(s *state, acted bool) (appsv1.DaemonSetStatus, time.Duration) {
	out := *s.set.Status.DeepCopy()
	out.DesiredNumberScheduled, out.CurrentNumberScheduled, out.NumberMisscheduled = 0, 0, 0
	out.NumberReady, out.NumberAvailable, out.UpdatedNumberScheduled = 0, 0, 0
	if acted {
		out.ObservedGeneration = s.set.Generation
	}
	var again time.Duration
	for _, at := range s.places {
		switch {
		case at.exists && !at.run && len(at.pods) > 0:
			out.NumberMisscheduled++
		case at.run:
			out.DesiredNumberScheduled++
		}
		if !at.run || len(at.pods) == 0 {
			continue
		}
		out.CurrentNumberScheduled++
		first := at.pods[0]
		if updated(s.set, first, s.hash) {
			out.UpdatedNumberScheduled++
		}
		if controller.Ready(first) {
			out.NumberReady++
		}
		ok, left := controller.Available(first, time.Duration(s.set.Spec.MinReadySeconds)*time.Second, s.now)
		if ok {
			out.NumberAvailable++
		} else if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	out.NumberUnavailable = out.DesiredNumberScheduled - out.NumberAvailable
	return out, again
}
