// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math/bits"

	"keelson.dev/scheduling"
)

// Cause is the reason why a pod entered one of the queue's places (active, backoff, unschedulable
// or gated).
type Cause int8

// The causes. The values from firstEvent on stand for the bits of scheduling.Event, in their order.
const (
	podAdded Cause = iota + 1
	podUpdated
	attemptFailed
	backoffEnded
	backoffPopped
	timedOut
	firstEvent

	causes = firstEvent + 32
)

// causeOf returns the cause for the lowest bit in events. events must not be 0.
func causeOf(events scheduling.Event) Cause {
	return firstEvent + Cause(bits.TrailingZeros32(uint32(events)))
}

// String returns Kubernetes' label of the cause. Kubernetes distinguishes more events: it has one
// for each kind of object that concerns volumes and devices.
func (c Cause) String() string {
	switch c {
	case podAdded:
		return "UnschedulablePodAdd"
	case podUpdated:
		return "UnschedulablePodUpdate"
	case attemptFailed:
		return "ScheduleAttemptFailure"
	case backoffEnded:
		return "BackoffComplete"
	case backoffPopped:
		return "PopFromBackoffQ"
	case timedOut:
		return "UnschedulableTimeout"
	default:
		return EventLabel(1 << (c - firstEvent))
	}
}

// EventLabel returns Kubernetes' label of an event, for metrics.
func EventLabel(e scheduling.Event) string {
	switch e {
	case scheduling.NodeAdded:
		return "NodeAdd"
	case scheduling.NodeLabelsChanged:
		return "NodeUpdateNodeLabel"
	case scheduling.NodeTaintsChanged:
		return "NodeUpdateNodeTaint"
	case scheduling.NodeResourcesGrown:
		return "NodeUpdateNodeAllocatable"
	case scheduling.NodeFeaturesChanged:
		return "NodeUpdateNodeDeclaredFeature"
	case scheduling.PodRemoved:
		return "AssignedPodDelete"
	case scheduling.PodAdded:
		return "AssignedPodAdd"
	case scheduling.PodChanged:
		return "UnschedulablePodUpdate"
	case scheduling.VolumesChanged:
		return "VolumesUpdate"
	case scheduling.DevicesChanged:
		return "DevicesUpdate"
	case scheduling.ClassesChanged:
		return "resource.k8s.io/DeviceClassUpdate"
	case scheduling.NamespaceChanged:
		return "NamespaceUpdate"
	}
	return "Unknown"
}

// incoming counts how many pods entered each place of the queue, by cause.
type incoming [gated + 1][causes]uint64

func (in *incoming) count(where place, why Cause) { in[where][why]++ }

// Counts has the numbers of pods in the queue, for metrics.
type Counts struct {
	// Active, Backoff, Unschedulable and Gated are the numbers of pods in each place. Popped is the
	// number of pods that Pop has returned and that are still in flight.
	Active, Backoff, Unschedulable, Gated, Popped int
	// Rejected is the number of unschedulable pods by the plugin that rejected them.
	Rejected map[Rejection]int
}

// Rejection has the name of a plugin that rejected a pod, and the profile of the pod.
type Rejection struct{ Plugin, Profile string }

// Counts returns the current numbers of pods in the queue.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := Counts{Rejected: map[Rejection]int{}}
	for _, item := range q.items {
		switch item.place {
		case inFlight:
			c.Popped++
			continue
		case active:
			c.Active++
		case backoff:
			c.Backoff++
		case unschedulable:
			c.Unschedulable++
		case gated:
			c.Gated++
			c.Rejected[Rejection{item.gatedBy.Plugin, item.latest.Spec.SchedulerName}]++
		}
		for _, plugin := range item.Rejectors {
			c.Rejected[Rejection{plugin, item.latest.Spec.SchedulerName}]++
		}
	}
	return c
}

// Incoming calls a function for every place of the queue and every cause, with the number of pods
// that have entered the place so far. Gated pods count as unschedulable, as in Kubernetes.
func (q *Queue) Incoming(each func(queue string, why Cause, pods uint64)) {
	q.mu.Lock()
	in := q.incoming
	q.mu.Unlock()
	for why := range causes {
		for queue, n := range map[string]uint64{
			"active": in[active][why], "backoff": in[backoff][why],
			"unschedulable": in[unschedulable][why] + in[gated][why],
		} {
			if n > 0 {
				each(queue, why, n)
			}
		}
	}
}
