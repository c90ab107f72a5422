// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// spanReady is the name of the span in a pod's trace that lasts from when the pod runs until it is
// ready.
const spanReady = "kubelet.ready"

// errDeletedEarly is the error in the trace of a pod that was deleted before it was ready.
var errDeletedEarly = errors.New("the pod was deleted before it was ready")

// tracedSince returns when the kubelet first saw the pod. It returns the zero time if the pod's
// trace is complete, or if the pod started before this kubelet process.
func (w *worker) tracedSince() time.Time {
	w.in.Lock()
	defer w.in.Unlock()
	return w.in.since
}

// trace completes the pod's trace if the pod is ready, has ended or is being deleted: it records
// the trace's root span. The caller holds w.shown.mu.
func (w *worker) trace(pod *v1.Pod, s *v1.PodStatus) {
	if w.cfg.Traces == nil {
		return
	}
	since := w.tracedSince()
	if since.IsZero() {
		return
	}
	now := w.cfg.Clock.Now()
	if s.Phase == v1.PodRunning && w.shown.running.IsZero() {
		w.shown.running = now
	}
	root := podtrace.Span{Start: earliest(pod.CreationTimestamp.Time, since), End: now}
	switch {
	case isReady(s):
		w.cfg.Traces.Record(w.ctx, pod, podtrace.Span{Name: spanReady, Start: w.shown.running, End: now})
	case s.Phase == v1.PodSucceeded:
	case s.Phase == v1.PodFailed:
		root.Err = errors.New(cmp.Or(s.Message, s.Reason, "the pod failed"))
	case pod.DeletionTimestamp != nil:
		root.Err = errDeletedEarly
	default:
		return
	}
	w.cfg.Traces.RecordRoot(w.ctx, pod, root)
	w.in.Lock()
	w.in.since = time.Time{}
	w.in.Unlock()
}

func isReady(s *v1.PodStatus) bool {
	for i := range s.Conditions {
		if s.Conditions[i].Type == v1.PodReady {
			return s.Conditions[i].Status == v1.ConditionTrue
		}
	}
	return false
}
