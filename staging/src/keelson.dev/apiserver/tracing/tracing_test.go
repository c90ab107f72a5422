// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"keelson.dev/apiserver/tracing"
)

// TestSpan checks the spans below a recorded span.
func TestSpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, parent := provider.Tracer("test").Start(t.Context(), "parent")
	ctx, span := tracing.Start(ctx, "child", func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("key", "value")}
	})
	tracing.Current(ctx).Event("begun")
	span.Count("counted", "count", 2)
	span.Result("Call", nil)
	span.Sized("Decode", 3, errors.New("broken"))
	failed := errors.New("too bad")
	span.EndWith(&failed)
	span.End() // has no effect

	ended := recorder.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans ended, want 1", len(ended))
	}
	got := ended[0]
	if got.Name() != "child" || got.Parent().SpanID() != parent.SpanContext().SpanID() {
		t.Errorf("span %s below %s", got.Name(), got.Parent().SpanID())
	}
	if !slices.Contains(got.Attributes(), attribute.String("key", "value")) ||
		!slices.Contains(got.Attributes(), attribute.String("audit-id", "")) {
		t.Errorf("attributes %v", got.Attributes())
	}
	if s := got.Status(); s.Code != codes.Error || s.Description != "too bad" {
		t.Errorf("status %v", s)
	}
	var events []string
	for _, e := range got.Events() {
		events = append(events, e.Name)
	}
	want := []string{"begun", "counted", "Call succeeded", "Decode failed", "exception"}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	about := got.Events()[3].Attributes
	wantAbout := []attribute.KeyValue{attribute.Int("len", 3), attribute.String("err", "broken")}
	if !slices.Equal(about, wantAbout) {
		t.Errorf("attributes of the event %v, want %v", about, wantAbout)
	}
}

// TestNotRecorded checks that a request that is not traced, or not sampled, costs no memory.
func TestNotRecorded(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	unsampled, _ := provider.Tracer("test").Start(t.Context(), "parent")
	for name, ctx := range map[string]context.Context{"not traced": t.Context(), "not sampled": unsampled} {
		t.Run(name, func(t *testing.T) {
			key, err := "k", errors.New("broken")
			allocs := testing.AllocsPerRun(100, func() {
				ctx, span := tracing.Start(ctx, "child", func() []attribute.KeyValue {
					return []attribute.KeyValue{attribute.String("key", key)}
				})
				tracing.Current(ctx).Event("begun")
				span.Count("counted", "count", 2)
				span.Sized("Decode", 3, err)
				span.EndWith(&err)
				span.End()
			})
			if allocs > 0 {
				t.Errorf("%v allocations", allocs)
			}
		})
	}
}
