// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/tracing"
)

// The spans of reads that the cache answers begin with "cacher.", and those of reads and writes of
// the key-value store end with "etcd3", as in Kubernetes.

// Names of the events that spans of reads record.
const (
	eventCurrent = "getCurrentRV success"
	eventFresh   = "watchCache fresh enough"
	eventLocked  = "watchCache locked acquired"
)

// startGet begins the span of a read of one object from the cache.
func (s *Store) startGet(ctx context.Context, key, resourceVersion string) (context.Context, *tracing.Span) {
	return tracing.Start(ctx, "cacher.Get", func() []attribute.KeyValue {
		return []attribute.KeyValue{s.keyAttribute(key), attribute.String("resource-version", resourceVersion)}
	})
}

// startAll begins the span of a list or watch of the cache.
func (s *Store) startAll(ctx context.Context, name string) (context.Context, *tracing.Span) {
	return tracing.Start(ctx, name, func() []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("type", s.GroupResource.String())}
	})
}

// startStored begins the span of a read of one object from the key-value store.
func (s *Store) startStored(ctx context.Context, key string) (context.Context, *tracing.Span) {
	return tracing.Start(ctx, "Get etcd3", func() []attribute.KeyValue { return s.objectAttributes(key) })
}

// startWrite begins the span of a write of one object.
func (s *Store) startWrite(ctx context.Context, name, key string) (context.Context, *tracing.Span) {
	return tracing.Start(ctx, name, func() []attribute.KeyValue {
		return append(s.objectAttributes(key), attribute.String("type", s.TypeName))
	})
}

// startListStored begins the span of a list from the key-value store.
func (s *Store) startListStored(ctx context.Context, p *listPlan) (context.Context, *tracing.Span) {
	name := "List(recursive=true) etcd3"
	if _, one := p.match.key(); one {
		name = "List(recursive=false) etcd3"
	}
	return tracing.Start(ctx, name, func() []attribute.KeyValue {
		all := []attribute.KeyValue{s.keyAttribute(p.match.prefix()), attribute.Int64("limit", p.limit)}
		if o := p.asked; o != nil {
			all = append(all, attribute.String("resourceVersion", o.ResourceVersion),
				attribute.String("resourceVersionMatch", string(o.Match)), attribute.String("continue", o.Continue))
		}
		return all
	})
}

// snapshotEvent returns the name of the event that a list has taken a snapshot of the cache, or of
// one of its indexes.
func (p *listPlan) snapshotEvent(c *cache) string {
	if _, _, ok := p.match.indexed(c.fields); ok {
		return "GetByIndexSnapshot success"
	}
	return "GetLatestSnapshotOrBuildLocked success"
}

// keyAttribute returns the attribute for a key. As in Kubernetes, it does not contain the root of
// all keys.
func (s *Store) keyAttribute(key string) attribute.KeyValue {
	return attribute.String("key", "/"+s.prefix+key)
}

func (s *Store) objectAttributes(key string) []attribute.KeyValue {
	return []attribute.KeyValue{s.keyAttribute(key), attribute.String("group", s.GroupResource.Group),
		attribute.String("resource", s.GroupResource.Resource)}
}

// withContext returns fn, which an update calls inside its span, with ctx as the context of all calls.
// So the spans of admission are below the span of the request, and not below that of the write.
func withContext(ctx context.Context, span *tracing.Span, fn UpdateFunc) UpdateFunc {
	if span == nil {
		return fn
	}
	return func(_ context.Context, cur *Record) (Object, error) { return fn(ctx, cur) }
}

// committed adds the events for the transaction of an update.
func committed(span *tracing.Span, res kv.WriteResult, err error) {
	if err != nil {
		span.Result("Txn call", err)
		return
	}
	span.Event("Txn call completed")
	if res.OK {
		span.Event("Transaction committed")
	}
}
