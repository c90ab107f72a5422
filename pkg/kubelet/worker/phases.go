// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/metrics"
)

// Phase is a part of a pod's start whose duration is measured.
type Phase string

// The phases of a pod's start. The time that belongs to no phase is work of the kubelet itself.
const (
	PhaseVolumes Phase = "volumes" // preparing the cgroup, devices and volumes
	PhaseSandbox Phase = "sandbox" // the call RunSandbox, which starts the sandbox and its network
	PhaseImages  Phase = "images"
	PhaseCreate  Phase = "create" // the call CreateContainer
	PhaseStart   Phase = "start"  // the call StartContainer
	PhaseHooks   Phase = "hooks"  // postStart handlers
)

// Runtime reports whether the phase is a call to the container runtime.
func (p Phase) Runtime() bool { return p == PhaseSandbox || p == PhaseCreate || p == PhaseStart }

// Phases returns all phases in the order in which they happen.
func Phases() []Phase {
	return []Phase{PhaseVolumes, PhaseSandbox, PhaseImages, PhaseCreate, PhaseStart, PhaseHooks}
}

// enter begins a phase of the pod's start and its span. The function that it returns ends both.
// Only the worker's goroutine may call enter.
func (w *worker) enter(ctx context.Context, p Phase) (context.Context, func()) {
	begun := w.cfg.Clock.Now()
	ctx, span := w.cfg.Tracer.Start(ctx, string(p))
	return ctx, func() {
		w.phases[p] += w.cfg.Clock.Since(begun)
		span.End()
	}
}

// A span is named after the work that the worker does in this sync. These names are those of
// Kubernetes.
const (
	spanSync        = "syncPod"
	spanTerminating = "syncTerminatingPod"
	spanTerminated  = "syncTerminatedPod"
)

// updateType records in the span why the worker syncs the pod, and returns it: the pod is new to
// this kubelet process, the pod has changed in the API, or there is another reason.
func (w *worker) updateType(ctx context.Context, pod *v1.Pod) string {
	kind := metrics.Sync
	if w.looked == nil {
		kind = metrics.Create
		w.taken(pod)
	} else if w.looked != pod {
		kind = metrics.Update
	}
	w.looked = pod
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("k8s.pod.update_type", kind))
	return kind
}

// taken counts a pod that this kubelet process syncs for the first time.
func (w *worker) taken(pod *v1.Pod) {
	w.cfg.Metrics.Admitted(pod)
	w.in.Lock()
	seen := w.in.seen
	w.in.Unlock()
	if !seen.IsZero() {
		w.cfg.Metrics.WorkerStarted(w.cfg.Clock.Since(seen))
	}
}

// span starts the span of a sync. While the pod is starting, the span is part of the pod's trace.
func (w *worker) span(ctx context.Context, pod *v1.Pod) (context.Context, trace.Span) {
	if w.cfg.Traces != nil && !w.tracedSince().IsZero() {
		ctx = w.cfg.Traces.Join(ctx, w.uid)
	}
	return w.cfg.Tracer.Start(ctx, spanSync, trace.WithAttributes(
		attribute.String("k8s.pod.uid", string(w.uid)),
		attribute.String("k8s.pod", pod.Namespace+"/"+pod.Name),
		attribute.String("k8s.pod.name", pod.Name),
		attribute.String("k8s.namespace.name", pod.Namespace),
	))
}
