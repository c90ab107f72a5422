// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// status returns the status of a StatefulSet, from its pods before the plan was carried out.
// replaced is the number of pods that the plan has deleted for an update. The second result is the
// time until the number of available pods changes without an event, or 0 if it does not.
func status(s state, collisions, replaced int32) (appsv1.StatefulSetStatus, time.Duration) {
	out := appsv1.StatefulSetStatus{
		ObservedGeneration: s.set.Generation, CurrentRevision: s.current.name, UpdateRevision: s.update.name,
		CollisionCount: &collisions,
		Conditions:     slices.Clone(s.set.Status.Conditions), // other clients set them
	}
	var again time.Duration
	for _, pod := range s.pods {
		if exists(pod) {
			out.Replicas++
		}
		if isRunningReady(pod) {
			out.ReadyReplicas++
			ok, left := controller.Available(pod, minReady(s.set), s.now)
			if ok {
				out.AvailableReplicas++
			} else if again == 0 || left < again {
				again = left
			}
		}
		if exists(pod) && !terminating(pod) {
			if revisionOf(pod) == s.current.name {
				out.CurrentReplicas++
			}
			if revisionOf(pod) == s.update.name {
				out.UpdatedReplicas++
			}
		}
	}
	// replaced may include pods of a third revision, so the difference may be negative.
	out.CurrentReplicas = max(out.CurrentReplicas-replaced, 0)
	complete(s.set, &out)
	return out, again
}

// complete makes the update revision the current revision when all pods have it and are ready, with
// any update strategy. Kubernetes does this for OnDelete since 1.37 (kubernetes/kubernetes#136833).
func complete(set *appsv1.StatefulSet, s *appsv1.StatefulSetStatus) {
	want := *set.Spec.Replicas
	if s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
}

// outOfDate reports whether the status old must be replaced by s. It ignores conditions, because
// only other clients set them.
func outOfDate(old, s *appsv1.StatefulSetStatus) bool {
	return s.ObservedGeneration > old.ObservedGeneration || s.Replicas != old.Replicas ||
		s.CurrentReplicas != old.CurrentReplicas ||
		s.ReadyReplicas != old.ReadyReplicas || s.UpdatedReplicas != old.UpdatedReplicas ||
		s.AvailableReplicas != old.AvailableReplicas ||
		s.CurrentRevision != old.CurrentRevision || s.UpdateRevision != old.UpdateRevision
}
