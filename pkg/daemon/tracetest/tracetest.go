// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracetest provides an OpenTelemetry collector for tests. It listens on a loopback port
// and stores the spans that it receives by OTLP.
package tracetest

import (
	"context"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Span is a span that a collector has received.
type Span struct {
	Name string
	// Process identifies the process that created the span, by the attributes of its resource:
	// "key=value" pairs separated by spaces.
	Process string
	// Trace is the ID of the span's trace. ID is the span's own ID. Parent is the ID of the parent
	// span, or empty if the span has no parent.
	Trace, ID, Parent string
	// Links has the IDs of the traces that the span links to.
	Links []string
	// Start is the time at which the span began, in nanoseconds since 1970.
	Start uint64
	// Attributes are the attributes with text values. Events are the names of the events.
	Attributes map[string]string
	Events     []string
}

// Collector receives and stores spans. It is safe for concurrent use.
type Collector struct {
	otlp.UnimplementedTraceServiceServer
	// Endpoint is the address to which spans are sent.
	Endpoint string

	mu   sync.Mutex
	sent []Span
}

// Start starts a collector that runs until the test ends.
func Start(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{}
	c.Endpoint = Serve(tb, func(s *grpc.Server) { otlp.RegisterTraceServiceServer(s, c) })
	return c
}

// Serve starts a gRPC server on a loopback port until the test ends, and returns its address.
func Serve(tb testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := grpc.NewServer(options...)
	register(s)
	go func() { _ = s.Serve(l) }()
	tb.Cleanup(s.Stop)
	return l.Addr().String()
}

// Export implements the gRPC service of an OTLP collector.
func (c *Collector) Export(_ context.Context, r *otlp.ExportTraceServiceRequest) (
	*otlp.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		var about []string
		for _, a := range of.Resource.Attributes {
			about = append(about, a.Key+"="+a.Value.GetStringValue())
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{
					Name: s.Name, Process: strings.Join(about, " "),
					Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
				}
				span.Start, span.Attributes = s.StartTimeUnixNano, map[string]string{}
				for _, a := range s.Attributes {
					span.Attributes[a.Key] = a.Value.GetStringValue()
				}
				for _, e := range s.Events {
					span.Events = append(span.Events, e.Name)
				}
				for _, l := range s.Links {
					span.Links = append(span.Links, hex.EncodeToString(l.TraceId))
				}
				c.sent = append(c.sent, span)
			}
		}
	}
	return &otlp.ExportTraceServiceResponse{}, nil
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.sent...)
}
