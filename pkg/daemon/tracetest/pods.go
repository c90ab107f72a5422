// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tracetest

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// Ended is a channel that receives ended spans. If the channel is full, ending a span blocks.
type Ended chan sdktrace.ReadOnlySpan

var _ sdktrace.SpanProcessor = Ended(nil)

// room is the capacity of the channels that Pods returns.
const room = 1000

// Pods returns a tracer that samples all pods, and a channel that receives its spans.
func Pods() (*podtrace.Tracer, Ended) {
	ended := make(Ended, room)
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended), sdktrace.WithIDGenerator(podtrace.IDs{}))
	return podtrace.New(p, sdktrace.AlwaysSample()), ended
}

// OnStart implements sdktrace.SpanProcessor.
func (Ended) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (e Ended) OnEnd(s sdktrace.ReadOnlySpan) { e <- s }

// Shutdown implements sdktrace.SpanProcessor.
func (Ended) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (Ended) ForceFlush(context.Context) error { return nil }
