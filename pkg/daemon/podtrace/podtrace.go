// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtrace

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// scope is the name of the instrumentation scope of the spans.
const scope = "keelson.dev/keelson/pkg/daemon/podtrace"

// rootName is the name of the root span.
const rootName = "pod"

// Tracer records spans in the traces of pods.
type Tracer struct {
	tracer  trace.Tracer
	sampler sdktrace.Sampler
}

// New returns a Tracer. sampler decides which pods are sampled. It must be the sampler that the
// provider uses for spans without a parent, and the provider must use IDs as its ID generator.
func New(provider trace.TracerProvider, sampler sdktrace.Sampler) *Tracer {
	return &Tracer{provider.Tracer(scope), sampler}
}

// Span is a finished step of a pod's start.
type Span struct {
	Name       string
	Start, End time.Time
	// Err is the error if the step failed, or nil.
	Err        error
	Attributes []attribute.KeyValue
}

// Join returns a context in which new spans become children of the root span of the pod's trace.
func (t *Tracer) Join(ctx context.Context, uid types.UID) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, t.root(uid))
}

// root returns the span context of a pod's root span.
func (t *Tracer) root(uid types.UID) trace.SpanContext {
	id := TraceID(uid)
	result := t.sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: id, Name: rootName})
	return rootOf(id, result.Decision == sdktrace.RecordAndSample)
}

// Record adds a span to the pod's trace. If ctx contains a sampled span, for example that of an
// HTTP request, the new span has a link to it.
func (t *Tracer) Record(ctx context.Context, pod metav1.Object, s Span) {
	if t == nil {
		return
	}
	root := t.root(pod.GetUID())
	if !root.IsSampled() {
		return
	}
	options := append(s.options(), trace.WithAttributes(Attributes(pod)...))
	if link := trace.LinkFromContext(ctx); link.SpanContext.IsSampled() {
		options = append(options, trace.WithLinks(link))
	}
	_, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, root), s.Name, options...)
	s.end(span)
}

// RecordRoot adds the root span to the pod's trace. Only one process may call it for a pod.
func (t *Tracer) RecordRoot(ctx context.Context, pod metav1.Object, s Span) {
	if t == nil {
		return
	}
	s.Name = rootName
	ctx = context.WithValue(ctx, rootKey{}, t.root(pod.GetUID()))
	_, span := t.tracer.Start(ctx, s.Name,
		append(s.options(), trace.WithNewRoot(), trace.WithAttributes(Attributes(pod)...))...)
	s.end(span)
}

func (s *Span) options() []trace.SpanStartOption {
	return []trace.SpanStartOption{trace.WithTimestamp(s.Start), trace.WithAttributes(s.Attributes...)}
}

func (s *Span) end(span trace.Span) {
	if s.Err != nil {
		span.SetStatus(codes.Error, s.Err.Error())
	}
	span.End(trace.WithTimestamp(s.End))
}

// Attributes returns the span attributes that identify a pod.
func Attributes(pod metav1.Object) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.pod.uid", string(pod.GetUID())),
		attribute.String("k8s.pod.name", pod.GetName()),
		attribute.String("k8s.namespace.name", pod.GetNamespace()),
	}
}
