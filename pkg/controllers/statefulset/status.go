// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// status returns the status for the pods before a plan was carried out. replaced is the number of
// pods that the plan deleted for an update. The duration is the time until the counts change
// without an event (0 for never).
func status(s state, collisions, replaced int32) (appsv1.StatefulSetStatus, time.Duration) {
	out := appsv1.StatefulSetStatus{
		ObservedGeneration: s.set.Generation, CurrentRevision: s.current.name, UpdateRevision: s.update.name,
		CollisionCount: &collisions,
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
	// A replaced pod may have had neither the current nor the new revision, so the difference can
	// be negative.
	out.CurrentReplicas = max(out.CurrentReplicas-replaced, 0)
	complete(s.set, &out)
	return out, again
}

// complete ends an update when all pods are updated, with any strategy. Kubernetes does so with
// OnDelete since 1.37 (kubernetes/kubernetes#136833).
func complete(set *appsv1.StatefulSet, s *appsv1.StatefulSetStatus) {
	want := *set.Spec.Replicas
	if s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
}

// outOfDate reports whether a status must be written. It ignores conditions, which other clients
// may set.
func outOfDate(old, s *appsv1.StatefulSetStatus) bool {
	return s.ObservedGeneration > old.ObservedGeneration || s.Replicas != old.Replicas ||
		s.CurrentReplicas != old.CurrentReplicas ||
		s.ReadyReplicas != old.ReadyReplicas || s.UpdatedReplicas != old.UpdatedReplicas ||
		s.AvailableReplicas != old.AvailableReplicas ||
		s.CurrentRevision != old.CurrentRevision || s.UpdateRevision != old.UpdateRevision
}
