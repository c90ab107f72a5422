// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// lastSpans is how long Shutdown waits for the collector to accept the last spans.
const lastSpans = 2 * time.Second

// perMillion is the denominator of the sampling rate in a TracingConfiguration.
const perMillion = 1_000_000

// Tracing exports a process's spans to an OpenTelemetry collector. A nil *Tracing does nothing. If
// the collector does not respond, spans are stored in a queue of limited size, and dropped when it
// is full; no caller waits for the collector.
type Tracing struct {
	provider *sdktrace.TracerProvider
	pods     *podtrace.Tracer
}

// NewTracing returns the tracing that c configures. service and host identify the process in its
// spans. It returns nil if c is nil. If a request carries a sampling decision of its client, that
// decision applies; of all other requests, the configured share is sampled.
func NewTracing(ctx context.Context, c *tracingapi.TracingConfiguration, service, host string) (*Tracing, error) {
	if c == nil {
		return nil, nil
	}
	if err := tracingapi.ValidateTracingConfiguration(c, nil, field.NewPath("tracing")).ToAggregate(); err != nil {
		return nil, err
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure()}
	if c.Endpoint != nil {
		options = append(options, otlptracegrpc.WithEndpoint(*c.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	of, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("host.name", host)))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return newTracing(c, sdktrace.NewBatchSpanProcessor(exporter), sdktrace.WithResource(of)), nil
}

// newTracing returns a Tracing that passes sampled spans to a span processor.
func newTracing(c *tracingapi.TracingConfiguration, spans sdktrace.SpanProcessor,
	options ...sdktrace.TracerProviderOption) *Tracing {
	sampler := sdktrace.NeverSample()
	if rate := c.SamplingRatePerMillion; rate != nil && *rate > 0 {
		sampler = sdktrace.TraceIDRatioBased(float64(*rate) / perMillion)
	}
	p := sdktrace.NewTracerProvider(append(options, sdktrace.WithSampler(sdktrace.ParentBased(sampler)),
		sdktrace.WithSpanProcessor(spans), sdktrace.WithIDGenerator(podtrace.IDs{}))...)
	return &Tracing{p, podtrace.New(p, sampler)}
}

// Pods returns the tracer for traces of pods, or nil if t is nil.
func (t *Tracing) Pods() *podtrace.Tracer {
	if t == nil {
		return nil
	}
	return t.pods
}

// Tracer returns a tracer for the part of the program with the given name.
func (t *Tracing) Tracer(name string) trace.Tracer {
	if t == nil {
		return noop.NewTracerProvider().Tracer(name)
	}
	return t.provider.Tracer(name)
}

// Dial returns the dial options with which a gRPC client traces its calls.
func (t *Tracing) Dial() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(tracing.Propagators()),
	))}
}

// Client changes the configuration of an API client so that the client traces its requests.
func (t *Tracing) Client(c *rest.Config) {
	if t != nil {
		c.Wrap(t.RoundTripper)
	}
}

// RoundTripper returns a RoundTripper that traces requests and sends them with rt.
func (t *Tracing) RoundTripper(rt http.RoundTripper) http.RoundTripper {
	if t == nil {
		return rt
	}
	return &tracedTransport{tracing.WrapperFor(t.provider)(rt), rt}
}

// tracedTransport is a transport that traces requests. client-go finds the inner transport by its
// method WrappedRoundTripper.
type tracedTransport struct {
	http.RoundTripper
	inner http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &tracedTransport{}

// WrappedRoundTripper returns the inner transport, without tracing.
func (t *tracedTransport) WrappedRoundTripper() http.RoundTripper { return t.inner }

// Provider returns the tracer provider for libraries, or nil if t is nil.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Handler returns a handler that calls h for each request, inside a span with the given name.
func (t *Tracing) Handler(h http.Handler, name string) http.Handler {
	if t == nil {
		return h
	}
	return tracing.WithTracing(h, t.provider, name)
}

// End calls Shutdown when the process ends, and logs an error.
func (t *Tracing) End(ctx context.Context, log *slog.Logger) {
	if err := t.Shutdown(ctx); err != nil {
		log.Info("Failed to export the last spans", "err", err)
	}
}

// Shutdown exports the remaining spans. It drops spans that the collector does not accept within
// lastSpans.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	return t.provider.Shutdown(ctx)
}
