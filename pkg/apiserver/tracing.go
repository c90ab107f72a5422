// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/tracing"
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

// traced returns the key-value store of a database, with a span for each call that is part of a traced
// request. The client of external servers of etcd records such spans itself.
func (s *Server) traced(db *database) kv.Store {
	if s.tracing == nil || db.external {
		return db.kv
	}
	return tracedStore{db.kv}
}

// The names of the spans are those of the methods of etcd.
const (
	etcdRange = "etcdserverpb.KV/Range"
	etcdTxn   = "etcdserverpb.KV/Txn"
)

// tracedStore adds a span for each call that is part of a traced request. The server's own calls,
// such as watches, have no spans.
type tracedStore struct{ kv.Store }

// Get implements kv.Store.
func (s tracedStore) Get(ctx context.Context, key string) (_ *kv.Item, _ int64, err error) {
	ctx, span := startCall(ctx, etcdRange, key)
	defer span.EndWith(&err)
	return s.Store.Get(ctx, key)
}

// Range implements kv.Store.
func (s tracedStore) Range(ctx context.Context, opts kv.RangeOptions) (_ kv.RangeResult, err error) {
	ctx, span := startCall(ctx, etcdRange, opts.Prefix)
	defer span.EndWith(&err)
	return s.Store.Range(ctx, opts)
}

// Put implements kv.Store.
func (s tracedStore) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (_ kv.WriteResult, err error) {
	ctx, span := startCall(ctx, etcdTxn, key)
	defer span.EndWith(&err)
	return s.Store.Put(ctx, key, value, expect, ttl, conditions...)
}

// Delete implements kv.Store.
func (s tracedStore) Delete(ctx context.Context, key string, expect int64) (_ kv.WriteResult, err error) {
	ctx, span := startCall(ctx, etcdTxn, key)
	defer span.EndWith(&err)
	return s.Store.Delete(ctx, key, expect)
}

// WriteAll implements kv.Store.
func (s tracedStore) WriteAll(ctx context.Context, changes []kv.Change) (_ kv.WriteResult, err error) {
	first := ""
	if len(changes) > 0 {
		first = changes[0].Key
	}
	ctx, span := startCall(ctx, etcdTxn, first)
	defer span.EndWith(&err)
	return s.Store.WriteAll(ctx, changes)
}

func startCall(ctx context.Context, method, key string) (context.Context, *tracing.Span) {
	return tracing.Start(ctx, method, func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("key", key)}
	})
}
