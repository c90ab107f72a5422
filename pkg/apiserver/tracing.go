// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// podCreated returns a function that records the create of a pod in the trace of the pod (see
// package podtrace). It returns nil if tracing is off.
func (s *Server) podCreated() func(context.Context, *corev1.Pod) {
	if s.tracing == nil {
		return nil
	}
	pods := s.tracing.Pods()
	return func(ctx context.Context, pod *corev1.Pod) {
		pods.Record(ctx, pod, podtrace.Span{Name: "apiserver.create", Start: resource.Time(ctx).Time,
			End: s.deps.Clock.Now()})
	}
}

// traced returns inner with a span for each call that is part of a traced request. It returns inner
// itself if tracing is off.
func (s *Server) traced(inner kv.Store) kv.Store {
	if s.tracing == nil {
		return inner
	}
	return tracedStore{inner}
}

// tracedStore adds a span for each call that is part of a traced request. The server's own calls,
// such as watches, have no spans.
type tracedStore struct{ kv.Store }

// span begins a span, unless it would not be recorded. The returned function ends it.
func (tracedStore) span(ctx context.Context, name, key string) (context.Context, func(*error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(*error) {}
	}
	ctx, span := parent.TracerProvider().Tracer("keelson.dev/keelson/pkg/apiserver").
		Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("key", key)))
	return ctx, func(err *error) {
		if *err != nil {
			span.RecordError(*err)
			span.SetStatus(codes.Error, (*err).Error())
		}
		span.End()
	}
}

// Get implements kv.Store.
func (s tracedStore) Get(ctx context.Context, key string) (_ *kv.Item, _ int64, err error) {
	ctx, end := s.span(ctx, "etcd Get", key)
	defer end(&err)
	return s.Store.Get(ctx, key)
}

// Range implements kv.Store.
func (s tracedStore) Range(ctx context.Context, opts kv.RangeOptions) (_ kv.RangeResult, err error) {
	ctx, end := s.span(ctx, "etcd Range", opts.Prefix)
	defer end(&err)
	return s.Store.Range(ctx, opts)
}

// Put implements kv.Store.
func (s tracedStore) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (_ kv.WriteResult, err error) {
	ctx, end := s.span(ctx, "etcd Put", key)
	defer end(&err)
	return s.Store.Put(ctx, key, value, expect, ttl, conditions...)
}

// Delete implements kv.Store.
func (s tracedStore) Delete(ctx context.Context, key string, expect int64) (_ kv.WriteResult, err error) {
	ctx, end := s.span(ctx, "etcd Delete", key)
	defer end(&err)
	return s.Store.Delete(ctx, key, expect)
}

// WriteAll implements kv.Store.
func (s tracedStore) WriteAll(ctx context.Context, changes []kv.Change) (_ kv.WriteResult, err error) {
	first := ""
	if len(changes) > 0 {
		first = changes[0].Key
	}
	ctx, end := s.span(ctx, "etcd WriteAll", first)
	defer end(&err)
	return s.Store.WriteAll(ctx, changes)
}
