// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/scheduler/queue"
)

// Names of the scheduler's spans in the trace of a pod.
const (
	spanQueue  = "scheduler.queue"  // from the pod's arrival to the start of the attempt that found its node
	spanDecide = "scheduler.decide" // an attempt to find a node, without the binding
	spanBind   = "scheduler.bind"   // preparing volumes and devices, and binding
)

// traceTime returns the current time if pods are traced, and otherwise the zero time.
func (s *Scheduler) traceTime() time.Time {
	if s.cfg.Traces == nil {
		return time.Time{}
	}
	return s.cfg.Clock.Now()
}

// traceBinding records spans for a pod that was bound. The argument start is when the attempt that
// bound it began.
func (s *Scheduler) traceBinding(ctx context.Context, item *queue.Item, d decision, start time.Time) {
	if s.cfg.Traces == nil {
		return
	}
	pod, record := item.Pod, s.cfg.Traces.Record
	record(ctx, pod, podtrace.Span{Name: spanQueue, Start: item.Since, End: start,
		Attributes: []attribute.KeyValue{attribute.Int("keelson.scheduler.attempts", item.Attempts)}})
	record(ctx, pod, podtrace.Span{Name: spanDecide, Start: start, End: d.decided})
	record(ctx, pod, podtrace.Span{Name: spanBind, Start: d.decided, End: s.cfg.Clock.Now(),
		Attributes: []attribute.KeyValue{attribute.String("k8s.node.name", d.node)}})
}

// traceRejection records a span for an attempt that found no node and began at start.
func (s *Scheduler) traceRejection(ctx context.Context, pod *v1.Pod, start time.Time, message string) {
	if s.cfg.Traces == nil {
		return
	}
	s.cfg.Traces.Record(ctx, pod, podtrace.Span{Name: spanDecide, Start: start, End: s.cfg.Clock.Now(),
		Err: errors.New(message)})
}
