// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"keelson.dev/keelson/pkg/daemon/tracetest"
)

// parents returns a map from the name of each span to the name of its parent span.
func parents(t *testing.T, spans []tracetest.Span) map[string]string {
	t.Helper()
	byID, out := map[string]string{}, map[string]string{}
	for _, s := range spans {
		byID[s.ID] = s.Name
		if s.Process != "host.name=n1 service.name=kubelet" {
			t.Errorf("span %s is of %s", s.Name, s.Process)
		}
	}
	for _, s := range spans {
		out[s.Name] = byID[s.Parent]
	}
	return out
}

// TestTracing checks that the spans of a process and of the servers that it calls arrive at the
// collector as one trace.
func TestTracing(t *testing.T) {
	for name, tc := range map[string]struct {
		rate int32
		want map[string]string
	}{
		"all of it": {1_000_000, map[string]string{"syncPod": "", "grpc.health.v1.Health/Check": "syncPod"}},
		"nothing":   {0, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			received := tracetest.Start(t)
			var carried string
			other := tracetest.Serve(t, func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, health.NewServer()) },
				grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
					handler grpc.UnaryHandler) (any, error) {
					md, _ := metadata.FromIncomingContext(ctx)
					carried = strings.Join(md.Get("traceparent"), "")
					return handler(ctx, req)
				}))
			tracing, err := NewTracing(t.Context(),
				&tracingapi.TracingConfiguration{Endpoint: &received.Endpoint, SamplingRatePerMillion: &tc.rate}, "kubelet", "n1")
			if err != nil {
				t.Fatal(err)
			}
			conn, err := grpc.NewClient(other,
				append(tracing.Dial(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
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
			got := parents(t, received.Spans())
			if len(got) != len(tc.want) {
				t.Errorf("spans %v, want %v", got, tc.want)
			}
			for name, parent := range tc.want {
				if has, ok := got[name]; !ok || has != parent {
					t.Errorf("span %s is of %q, want %q", name, has, parent)
				}
			}
			if id := span.SpanContext().TraceID().String(); !strings.Contains(carried, id) {
				t.Errorf("the server received %q, which does not carry trace %s", carried, id)
			}
		})
	}
}

// TestNoTracing checks that NewTracing returns nil without a configuration, and an error for an
// invalid configuration.
func TestNoTracing(t *testing.T) {
	none, err := NewTracing(t.Context(), nil, "kubelet", "n1")
	if err != nil || none != nil {
		t.Fatal(none, err)
	}
	if _, span := none.Tracer("x").Start(t.Context(), "x"); span.SpanContext().IsValid() ||
		none.Dial() != nil || none.Shutdown(t.Context()) != nil {
		t.Error("there is tracing without a configuration")
	}
	rate, endpoint := int32(1_000_001), "http://127.0.0.1:4317"
	for _, c := range []*tracingapi.TracingConfiguration{{SamplingRatePerMillion: &rate}, {Endpoint: &endpoint}} {
		if _, err := NewTracing(t.Context(), c, "kubelet", "n1"); err == nil || !strings.HasPrefix(err.Error(), "tracing.") {
			t.Errorf("error %v", err)
		}
	}
}

// TestTracedRequests checks that HTTP requests carry the trace's ID in a header, and that client-go
// finds the inner transport.
func TestTracedRequests(t *testing.T) {
	var carried string
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		carried = r.Header.Get("Traceparent")
	}))
	defer other.Close()
	received := tracetest.Start(t)
	rate := int32(1_000_000)
	tracing, err := NewTracing(t.Context(), &tracingapi.TracingConfiguration{Endpoint: &received.Endpoint,
		SamplingRatePerMillion: &rate}, "kubelet", "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tracing.Shutdown(t.Context()) }()
	ctx, span := tracing.Tracer("test").Start(t.Context(), "x")
	defer span.End()
	rt := tracing.RoundTripper(other.Client().Transport)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, other.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if id := span.SpanContext().TraceID().String(); !strings.Contains(carried, id) {
		t.Errorf("the server received %q, which does not carry trace %s", carried, id)
	}
	if c, err := utilnet.TLSClientConfig(rt); err != nil || c == nil || c.RootCAs == nil {
		t.Errorf("configuration of what asks: %v, %v", c, err)
	}
}
