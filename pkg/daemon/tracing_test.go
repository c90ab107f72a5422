// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// spans is a collector that keeps what it is sent.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	sent []*collector.ExportTraceServiceRequest
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, r)
	return &collector.ExportTraceServiceResponse{}, nil
}

// names are those of the spans, each with that of the span that it is part of.
func (s *spans) names(t *testing.T) map[string]string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	byID, parent, out := map[string]string{}, map[string]string{}, map[string]string{}
	for _, r := range s.sent {
		for _, of := range r.ResourceSpans {
			var about []string
			for _, a := range of.Resource.Attributes {
				about = append(about, a.Key+"="+a.Value.GetStringValue())
			}
			if got := strings.Join(about, " "); got != "host.name=n1 service.name=kubelet" {
				t.Errorf("spans are of %s", got)
			}
			for _, scope := range of.ScopeSpans {
				for _, span := range scope.Spans {
					byID[string(span.SpanId)], parent[span.Name] = span.Name, string(span.ParentSpanId)
				}
			}
		}
	}
	for name, id := range parent {
		out[name] = byID[id]
	}
	return out
}

// serve has a gRPC server listen on an address of the machine's own, and returns it.
func serve(t *testing.T, register func(*grpc.Server), options ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// TestTracing: what is done and what is asked of others for it arrive at the collector as one trace, which goes on at the others.
func TestTracing(t *testing.T) {
	for name, tc := range map[string]struct {
		rate int32
		want map[string]string
	}{
		"all of it": {1_000_000, map[string]string{"syncPod": "", "grpc.health.v1.Health/Check": "syncPod"}},
		"nothing":   {0, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			received := &spans{}
			endpoint := serve(t, func(s *grpc.Server) { collector.RegisterTraceServiceServer(s, received) })
			var carried string
			other := serve(t, func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, health.NewServer()) },
				grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					md, _ := metadata.FromIncomingContext(ctx)
					carried = strings.Join(md.Get("traceparent"), "")
					return handler(ctx, req)
				}))
			tracing, err := NewTracing(t.Context(), &tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: &tc.rate}, "kubelet", "n1")
			if err != nil {
				t.Fatal(err)
			}
			conn, err := grpc.NewClient(other, append(tracing.Dial(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			ctx, span := tracing.Tracer("test").Start(t.Context(), "syncPod")
			if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
			span.End()
			if err := tracing.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := received.names(t)
			if len(got) != len(tc.want) {
				t.Errorf("spans %v, want %v", got, tc.want)
			}
			for name, parent := range tc.want {
				if has, ok := got[name]; !ok || has != parent {
					t.Errorf("span %s is of %q, want %q", name, has, parent)
				}
			}
			if id := span.SpanContext().TraceID().String(); !strings.Contains(carried, id) {
				t.Errorf("the other was told %q, which is not trace %s", carried, id)
			}
		})
	}
}

// TestNoTracing: without a configuration nothing is made, and what is wrong in one is told.
func TestNoTracing(t *testing.T) {
	none, err := NewTracing(t.Context(), nil, "kubelet", "n1")
	if err != nil || none != nil {
		t.Fatal(none, err)
	}
	if _, span := none.Tracer("x").Start(t.Context(), "x"); span.SpanContext().IsValid() || none.Dial() != nil || none.Shutdown(t.Context()) != nil {
		t.Error("there is tracing without a configuration")
	}
	rate, endpoint := int32(1_000_001), "http://127.0.0.1:4317"
	for _, c := range []*tracingapi.TracingConfiguration{{SamplingRatePerMillion: &rate}, {Endpoint: &endpoint}} {
		if _, err := NewTracing(t.Context(), c, "kubelet", "n1"); err == nil || !strings.HasPrefix(err.Error(), "tracing.") {
			t.Errorf("error %v", err)
		}
	}
}
