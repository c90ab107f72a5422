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

// Phase is a part of a pod's start.
type Phase string

// The phases there are. What of a start belongs to none of them is the kubelet's own work, and its waiting for its turn.
const (
	PhaseVolumes Phase = "volumes" // cgroup, devices and volumes
	PhaseSandbox Phase = "sandbox" // RunPodSandbox: pause container and network
	PhaseImages  Phase = "images"
	PhaseCreate  Phase = "create" // CreateContainer
	PhaseStart   Phase = "start"  // StartContainer
	PhaseHooks   Phase = "hooks"  // postStart handlers
)

// Runtime tells whether the container runtime works in this phase, and the kubelet waits.
func (p Phase) Runtime() bool { return p == PhaseSandbox || p == PhaseCreate || p == PhaseStart }

// Phases are all of them, in their order.
func Phases() []Phase {
	return []Phase{PhaseVolumes, PhaseSandbox, PhaseImages, PhaseCreate, PhaseStart, PhaseHooks}
}

// enter begins a phase of the pod's start, which is a span, and returns what ends it. It is of the worker's goroutine alone.
func (w *worker) enter(ctx context.Context, p Phase) (context.Context, func()) {
	begun := w.cfg.Clock.Now()
	ctx, span := w.cfg.Tracer.Start(ctx, string(p))
	return ctx, func() {
		w.phases[p] += w.cfg.Clock.Since(begun)
		span.End()
	}
}

// Names of the span of one look at a pod, by what is done for it. They are Kubernetes', as are its attributes.
const (
	spanSync        = "syncPod"
	spanTerminating = "syncTerminatingPod"
	spanTerminated  = "syncTerminatedPod"
)

// updateType notes and returns why a pod that is to run is looked at: it is new to this kubelet, the API has another version of it, or something
// else happened.
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

// taken counts a pod that is about to be run for the first time in this life of the kubelet.
func (w *worker) taken(pod *v1.Pod) {
	w.cfg.Metrics.Admitted(pod)
	w.in.Lock()
	seen := w.in.seen
	w.in.Unlock()
	if !seen.IsZero() {
		w.cfg.Metrics.First(w.cfg.Clock.Since(seen))
	}
}

// span begins that of one look at a pod.
func (w *worker) span(ctx context.Context, pod *v1.Pod) (context.Context, trace.Span) {
	return w.cfg.Tracer.Start(ctx, spanSync, trace.WithAttributes(
		attribute.String("k8s.pod.uid", string(w.uid)),
		attribute.String("k8s.pod", pod.Namespace+"/"+pod.Name),
		attribute.String("k8s.pod.name", pod.Name),
		attribute.String("k8s.namespace.name", pod.Namespace),
	))
}
