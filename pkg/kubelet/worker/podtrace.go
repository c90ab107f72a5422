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

// spanReady is the span in a pod's trace from running to ready.
const spanReady = "kubelet.ready"

// errDeletedEarly is the status of the trace of a pod that never became ready.
var errDeletedEarly = errors.New("the pod was deleted before it was ready")

// tracedSince returns when the pod was first seen, or zero if its trace is complete or began before
// this process.
func (w *worker) tracedSince() time.Time {
	w.in.Lock()
	defer w.in.Unlock()
	return w.in.since
}

// trace completes the pod's trace with its root span when the pod is ready or has ended. The caller
// holds w.shown.mu.
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
