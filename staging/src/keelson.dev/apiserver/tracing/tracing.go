// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing records the spans of a request to the API server (OpenTelemetry).
//
// The span in the context decides: below a span that is recorded, Start begins another one. In all
// other requests it returns a nil *Span, whose methods do nothing. So a request that is not traced
// costs one look at its context for each span that it would have, and allocates nothing.
//
// The names of spans, events and attributes are those of Kubernetes 1.37, because the dashboards
// and queries of operators contain them. An event says that a step of the work is done, so an
// event of Kubernetes for a step that this server does not need is left out.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/audit"
)

// scope is the instrumentation scope of all spans. It is that of Kubernetes' spans, including those
// of its libraries that this server uses, for example for webhooks.
const scope = "k8s.io/component-base/tracing"

// Span is a span that is recorded. The methods of a nil Span do nothing.
type Span struct{ recorded trace.Span }

// Start begins a span below the span of ctx, and returns the context for the work in it. The caller
// must call End. If the span of ctx is not recorded, Start returns ctx and nil, and does not call
// the function attributes. Every span has the audit ID of its request as a further attribute.
func Start(ctx context.Context, name string, attributes func() []attribute.KeyValue) (context.Context, *Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	all := append(attributes(), attribute.String("audit-id", audit.GetAuditIDTruncated(ctx)))
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithAttributes(all...))
	return ctx, &Span{span}
}

// Current returns the span of ctx, or nil if it is not recorded.
func Current(ctx context.Context) *Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return &Span{span}
	}
	return nil
}

// End ends the span. Only the first call has an effect.
func (s *Span) End() {
	if s != nil {
		s.recorded.End()
	}
}

// EndWith ends the span. If *err is set, the span gets this error and has failed.
func (s *Span) EndWith(err *error) {
	if s == nil {
		return
	}
	if *err != nil {
		s.recorded.RecordError(*err)
		s.recorded.SetStatus(codes.Error, (*err).Error())
	}
	s.recorded.End()
}

// Event adds an event to the span.
func (s *Span) Event(name string) {
	if s != nil {
		s.recorded.AddEvent(name)
	}
}

// Count adds an event with a number, the attribute key, to the span.
func (s *Span) Count(name, key string, n int) {
	if s != nil {
		s.recorded.AddEvent(name, trace.WithAttributes(attribute.Int(key, n)))
	}
}

// Result adds the event that a step of the work has succeeded, or failed if err is set.
func (s *Span) Result(step string, err error) {
	if s != nil {
		s.result(step, err)
	}
}

// Sized is like Result, for a step that has read or made data of the given length.
func (s *Span) Sized(step string, length int, err error) {
	if s != nil {
		s.result(step, err, attribute.Int("len", length))
	}
}

func (s *Span) result(step string, err error, about ...attribute.KeyValue) {
	if err == nil {
		s.recorded.AddEvent(step+" succeeded", trace.WithAttributes(about...))
		return
	}
	about = append(about, attribute.String("err", err.Error()))
	s.recorded.AddEvent(step+" failed", trace.WithAttributes(about...))
}
