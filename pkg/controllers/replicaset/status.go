// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// status returns the status of a ReplicaSet, and the time until it changes without an event. mine
// are the set's pods, active those of them that have not ended, and failure is the error of
// creating or deleting pods, or nil if there was no error.
func status(set *appsv1.ReplicaSet, mine, active []*v1.Pod, failure error,
	now time.Time) (appsv1.ReplicaSetStatus, time.Duration) {
	s := *set.Status.DeepCopy()
	s.ObservedGeneration = set.Generation
	s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = int32(len(active)), 0, 0, 0
	terminating := int32(0)
	for _, pod := range mine {
		if pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			terminating++
		}
	}
	s.TerminatingReplicas = &terminating
	var again time.Duration
	for _, pod := range active {
		if labeled(pod, set.Spec.Template.Labels) {
			s.FullyLabeledReplicas++
		}
		if controller.Ready(pod) {
			s.ReadyReplicas++
		}
		ok, left := controller.Available(pod, time.Duration(set.Spec.MinReadySeconds)*time.Second, now)
		if ok {
			s.AvailableReplicas++
		} else if left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return failure == nil && c.Type == appsv1.ReplicaSetReplicaFailure
	})
	if failure != nil &&
		!slices.ContainsFunc(s.Conditions, func(c appsv1.ReplicaSetCondition) bool {
			return c.Type == appsv1.ReplicaSetReplicaFailure
		}) {
		reason := "FailedCreate"
		if len(active) > int(*set.Spec.Replicas) {
			reason = "FailedDelete"
		}
		s.Conditions = append(s.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: v1.ConditionTrue, Reason: reason,
			Message: cause(failure), LastTransitionTime: metav1.NewTime(now),
		})
	}
	return s, again
}

// cause returns the API server's message in an error, or the error's own text if it is not from the
// API server.
func cause(err error) string {
	var st apierrors.APIStatus
	if errors.As(err, &st) {
		return st.Status().Message
	}
	return err.Error()
}

func labeled(pod *v1.Pod, want map[string]string) bool {
	for k, v := range want {
		if pod.Labels[k] != v {
			return false
		}
	}
	return true
}
