// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"keelson.dev/keelson/pkg/scheduler/profile"
)

// recorder writes the events of one profile, with Kubernetes' reasons and messages.
type recorder struct {
	events.EventRecorderLogger
	stop func()
}

type recorders map[string]recorder

// newRecorders returns a recorder for each profile. Events are reported under the profile's name.
func newRecorders(ctx context.Context, client kubernetes.Interface, profiles *profile.Set) recorders {
	out := recorders{}
	for name := range profiles.Profiles {
		b := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
		// The call fails only if the sink has an unknown type. The scheduler can continue without
		// events.
		if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to start the writer of Event objects")
		}
		out[name] = recorder{b.NewRecorder(scheme.Scheme, name), b.Shutdown}
	}
	return out
}

func (r recorders) shutdown() {
	for _, rec := range r {
		rec.stop()
	}
}

func (r recorder) scheduled(pod *v1.Pod, node string) {
	r.Eventf(pod, nil, v1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %s/%s to %s",
		pod.Namespace, pod.Name, node)
}

func (r recorder) failed(pod *v1.Pod, message string) {
	r.Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", message)
}

// preempted reports that a victim was evicted for a pod, or for the PodGroup of its verdict. As in
// Kubernetes, a PodGroup has the node "cluster".
func (r recorder) preempted(victim, pod *v1.Pod, by *verdict) {
	if g := by.preemptor; g != nil {
		r.Eventf(victim, g, v1.EventTypeNormal, "Preempted", "Preempting", "Preempted by podgroup %s on node cluster", g.UID)
		return
	}
	r.Eventf(victim, pod, v1.EventTypeNormal, "Preempted", "Preempting", "Preempted by pod %s on node %s", pod.UID,
		by.nominated)
}
