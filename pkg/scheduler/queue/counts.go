// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math/bits"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/scheduling"
)

// Cause is the reason why a pod entered one of the queue's places (active, backoff, unschedulable
// or gated).
type Cause int8

// The causes. The values from firstEvent on stand for the bits of scheduling.Event, in their order.
const (
	podAdded Cause = iota + 1
	podUpdated
	labelsUpdated
	scaledDown
	scaledUp
	gatesRemoved
	tolerationsUpdated
	claimsGenerated
	podGroupChanged
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

// updateOf returns the cause for an update of a waiting pod. If the pod changed in several ways, it
// is the first one in Kubernetes' order.
func updateOf(old, pod *v1.Pod) Cause {
	down, up := scaled(old, pod)
	switch {
	case !equal(old.Labels, pod.Labels):
		return labelsUpdated
	case down:
		return scaledDown
	case up:
		return scaledUp
	case len(old.Spec.SchedulingGates) > 0 && len(pod.Spec.SchedulingGates) == 0:
		return gatesRemoved
	case len(old.Spec.Tolerations) != len(pod.Spec.Tolerations):
		return tolerationsUpdated
	case len(old.Status.ResourceClaimStatuses) != len(pod.Status.ResourceClaimStatuses):
		return claimsGenerated
	}
	return podUpdated
}

// scaled reports whether the pod now requests less and more of a resource than before.
func scaled(old, pod *v1.Pod) (down, up bool) {
	options := resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	before, now := resourcehelper.PodRequests(old, options), resourcehelper.PodRequests(pod, options)
	for name, q := range before {
		down = down || q.Cmp(now[name]) > 0
	}
	for name, q := range now {
		up = up || q.Cmp(before[name]) > 0
	}
	return down, up
}

// String returns Kubernetes' label of the cause. Kubernetes distinguishes more events: it has one
// for each kind of object that concerns volumes and devices.
func (c Cause) String() string {
	switch c {
	case podAdded:
		return "UnscheduledPodAdd"
	case podUpdated:
		return "TargetPodUpdate"
	case labelsUpdated:
		return "TargetPodUpdatePodLabel"
	case scaledDown:
		return "TargetPodUpdatePodScaleDown"
	case scaledUp:
		return "TargetPodUpdatePodScaleUp"
	case gatesRemoved:
		return "TargetPodUpdatePodSchedulingGatesEliminated"
	case tolerationsUpdated:
		return "TargetPodUpdatePodToleration"
	case claimsGenerated:
		return "TargetPodUpdatePodGeneratedResourceClaim"
	case podGroupChanged:
		return "scheduling.k8s.io/PodGroupUpdate"
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
		return "TargetPodUpdate"
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
	// Rejected is the number of queued pods by the plugin that gates them, or that rejected them in their
	// last attempt.
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
