// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// backoffFirst and backoffMax are the first and the longest delay between a pod's failure and the
// creation of the next pod. The delay doubles with each failure.
const (
	backoffFirst = 10 * time.Second
	backoffMax   = 10 * time.Minute
)

// backoff contains the number of pod failures since the last success and the time of the last
// failure.
type backoff struct {
	failures int32
	last     time.Time
}

// after returns the back-off after some more pods have succeeded and failed.
func (b backoff) after(succeeded, failed []*v1.Pod) backoff {
	var success time.Time
	for _, pod := range succeeded {
		if at := endTime(pod); at.After(success) {
			success = at
		}
	}
	if len(succeeded) > 0 {
		b = backoff{}
	}
	for _, pod := range failed {
		at := endTime(pod)
		if len(succeeded) > 0 && !at.After(success) {
			continue
		}
		b.failures++
		if b.failures == 1 || at.After(b.last) {
			b.last = at
		}
	}
	return b
}

// remaining returns how long to wait until the next pod may be created. It returns 0 if it may be
// created now.
func (b backoff) remaining(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	wait := backoffFirst
	for i := int32(1); i < b.failures && wait < backoffMax; i++ {
		wait *= 2
	}
	return max(0, min(wait, backoffMax)-now.Sub(b.last))
}

// endTime returns the time at which a pod ended: the end of its last container or, if that is
// unknown, an estimate from the pod's conditions and timestamps.
func endTime(pod *v1.Pod) time.Time {
	if at := containersEnded(pod); !at.IsZero() {
		return at
	}
	if c := controller.Condition(pod, v1.PodReady); c != nil && c.Status == v1.ConditionFalse &&
		!c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp != nil {
		var grace time.Duration
		if s := pod.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		return pod.DeletionTimestamp.Add(-grace)
	}
	return pod.CreationTimestamp.Time
}

// containersEnded returns the time at which a pod's last container ended, including sidecars. It
// returns the zero time if a container still runs.
func containersEnded(pod *v1.Pod) time.Time {
	statuses := slices.Clone(pod.Status.ContainerStatuses)
	for _, s := range pod.Status.InitContainerStatuses {
		if controller.Sidecar(pod, s.Name) {
			statuses = append(statuses, s)
		}
	}
	var last time.Time
	for _, s := range statuses {
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			return time.Time{}
		}
		if at := s.State.Terminated.FinishedAt.Time; at.After(last) {
			last = at
		}
	}
	return last
}
