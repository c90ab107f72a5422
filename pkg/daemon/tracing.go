// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// lastSpans is how long a process that ends waits for the collector to take its last spans.
const lastSpans = 2 * time.Second

// Tracing is where a process's spans go: an OpenTelemetry collector. A nil Tracing makes none,
// and costs nothing. A collector that does not answer costs the spans that do not fit into a
// bounded queue, and nobody waits for it.
type Tracing struct{ provider tracing.TracerProvider }

// NewTracing makes the tracing that a configuration asks for under the name of a process and its
// machine; nil if there is none. Spans of requests that carry a decision on sampling follow it,
// of others the configured part is kept.
func NewTracing(ctx context.Context, c *tracingapi.TracingConfiguration, service, host string) (*Tracing, error) {
	if c == nil {
		return nil, nil
	}
	if err := tracingapi.ValidateTracingConfiguration(c, nil, field.NewPath("tracing")).ToAggregate(); err != nil {
		return nil, err
	}
	of := resource.WithAttributes(attribute.String("service.name", service), attribute.String("host.name", host))
	p, err := tracing.NewProvider(ctx, c, nil, []resource.Option{of})
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return &Tracing{p}, nil
}

// Tracer makes spans in the name of a part of the program.
func (t *Tracing) Tracer(name string) trace.Tracer {
	if t == nil {
		return noop.NewTracerProvider().Tracer(name)
	}
	return t.provider.Tracer(name)
}

// Dial is how a gRPC client is to be dialed whose calls are spans.
func (t *Tracing) Dial() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(tracing.Propagators()),
	))}
}

// Client has the requests of an API client be spans.
func (t *Tracing) Client(c *rest.Config) {
	if t != nil {
		c.Wrap(t.RoundTripper)
	}
}

// RoundTripper has the requests that rt makes be spans.
func (t *Tracing) RoundTripper(rt http.RoundTripper) http.RoundTripper {
	if t == nil {
		return rt
	}
	return &tracedTransport{tracing.WrapperFor(t.provider)(rt), rt}
}

// tracedTransport makes spans of requests, and lets others see whose they are.
type tracedTransport struct {
	http.RoundTripper
	inner http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &tracedTransport{}

// WrappedRoundTripper is what makes the requests.
func (t *tracedTransport) WrappedRoundTripper() http.RoundTripper { return t.inner }

// Provider makes the tracers of libraries; nil if there is no tracing.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Handler has the requests to a server be spans of that name.
func (t *Tracing) Handler(h http.Handler, name string) http.Handler {
	if t == nil {
		return h
	}
	return tracing.WithTracing(h, t.provider, name)
}

// Shutdown hands the last spans over; a collector that does not take them in time does not get them.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	return t.provider.Shutdown(ctx)
}
