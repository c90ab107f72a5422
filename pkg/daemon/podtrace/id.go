// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtrace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"github.com/google/uuid"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

// half is the number of bytes in each half of a trace ID.
const half = 8

// TraceID returns the ID of a pod's trace: the pod's UID with its two halves exchanged. Samplers
// use the second half of a trace ID as a random number, and only the first half of a UID begins
// with random bits. A UID that is not a UUID is hashed.
func TraceID(uid types.UID) trace.TraceID {
	u, err := uuid.Parse(string(uid))
	if err != nil {
		sum := sha256.Sum256([]byte(uid))
		copy(u[:], sum[:])
	}
	var id trace.TraceID
	copy(id[:half], u[half:])
	copy(id[half:], u[:half])
	return id
}

// rootOf returns the span context of the root span of a trace.
func rootOf(id trace.TraceID, sampled bool) trace.SpanContext {
	sum := sha256.Sum256(id[:])
	var span trace.SpanID
	copy(span[:], sum[:])
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, Remote: true,
		TraceFlags: trace.TraceFlags(0).WithSampled(sampled)})
}

// rootKey is the context key under which RecordRoot passes the IDs for a new root span to IDs.
type rootKey struct{}

// IDs generates the IDs of spans: computed IDs for a pod's root span, and random IDs for all other
// spans. A TracerProvider that is passed to New must use it as its ID generator.
type IDs struct{}

var _ sdktrace.IDGenerator = IDs{}

// NewIDs returns the trace ID and span ID of a span without a parent.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if root, ok := ctx.Value(rootKey{}).(trace.SpanContext); ok {
		return root.TraceID(), root.SpanID()
	}
	var id trace.TraceID
	random(id[:])
	return id, IDs{}.NewSpanID(ctx, id)
}

// NewSpanID returns the span ID of a span with a parent.
func (IDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var id trace.SpanID
	random(id[:])
	return id
}

// random fills b with random bytes that are not all zero.
func random(b []byte) {
	for {
		_, _ = rand.Read(b) // never returns an error
		for _, x := range b {
			if x != 0 {
				return
			}
		}
	}
}
