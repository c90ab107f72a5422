// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podtrace

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const uid = "0f8fad5b-d9cb-469f-a165-70867728950e"

// process simulates a process with a Tracer.
type process struct {
	*Tracer
	provider *sdktrace.TracerProvider
	recorder *tracetest.SpanRecorder
}

func newProcess(rate float64) *process {
	recorder, sampler := tracetest.NewSpanRecorder(), sdktrace.TraceIDRatioBased(rate)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder),
		sdktrace.WithIDGenerator(IDs{}), sdktrace.WithSampler(sdktrace.ParentBased(sampler)))
	return &process{New(provider, sampler), provider, recorder}
}

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: types.UID(uid)}}
}

func TestTraceID(t *testing.T) {
	for name, tc := range map[string]struct {
		uid  types.UID
		want string
	}{
		"UUID":                {uid, "a16570867728950e0f8fad5bd9cb469f"},
		"UID of a static pod": {"0f8fad5bd9cb469fa16570867728950e", "a16570867728950e0f8fad5bd9cb469f"},
		"other text":          {"p1", "cb87971cfb914464f64551fcd6f07823"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TraceID(tc.uid).String(); got != tc.want {
				t.Errorf("trace %s, want %s", got, tc.want)
			}
		})
	}
}

// TestOneTrace checks that the spans of two processes are in one trace, as children of the root
// span that one of the processes records.
func TestOneTrace(t *testing.T) {
	api, node := newProcess(1), newProcess(1)
	p, begun := pod(uid), time.Unix(1_000_000, 0)
	ctx, request := api.provider.Tracer("test").Start(t.Context(), "request")
	api.Record(ctx, p, Span{Name: "create", Start: begun, End: begun.Add(time.Second)})
	request.End()
	ctx, sync := node.provider.Tracer("test").Start(node.Join(t.Context(), p.UID), "syncPod")
	_, sandbox := node.provider.Tracer("test").Start(ctx, "sandbox")
	sandbox.End()
	sync.End()
	node.RecordRoot(t.Context(), p, Span{Start: begun, End: begun.Add(time.Minute), Err: errors.New("deleted")})

	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range append(api.recorder.Ended(), node.recorder.Ended()...) {
		spans[s.Name()] = s
	}
	root := spans["pod"]
	if root == nil || root.Parent().IsValid() || root.SpanContext().TraceID() != TraceID(uid) ||
		root.EndTime() != begun.Add(time.Minute) || root.Status().Description != "deleted" {
		t.Fatalf("root span: %+v", root)
	}
	for child, parent := range map[string]string{"create": "pod", "syncPod": "pod", "sandbox": "syncPod"} {
		s := spans[child]
		if s.SpanContext().TraceID() != TraceID(uid) || s.Parent().SpanID() != spans[parent].SpanContext().SpanID() {
			t.Errorf("%s is in trace %s below %s", child, s.SpanContext().TraceID(), s.Parent().SpanID())
		}
	}
	links := spans["create"].Links()
	if len(links) != 1 || !links[0].SpanContext.Equal(request.SpanContext()) {
		t.Errorf("links of the create: %v", links)
	}
	if s := spans["create"]; s.StartTime() != begun || s.EndTime() != begun.Add(time.Second) {
		t.Errorf("create from %v to %v", s.StartTime(), s.EndTime())
	}
	if id := spans["request"].SpanContext().TraceID(); id == TraceID(uid) || !id.IsValid() {
		t.Errorf("the request is in trace %s", id)
	}
}

// TestSampling checks that the share of sampled pods is about the sampling rate, and that processes
// with different rates sample consistent sets of pods.
func TestSampling(t *testing.T) {
	const pods, rate = 2000, 0.25
	full, most, some := newProcess(1), newProcess(2*rate), newProcess(rate)
	count := 0
	for i := range pods {
		p := pod(uuid.NewHash(sha256.New(), uuid.Nil, fmt.Append(nil, i), 4).String())
		sampled := func(x *process) bool {
			before := len(x.recorder.Ended())
			x.Record(t.Context(), p, Span{Name: "x"})
			x.RecordRoot(t.Context(), p, Span{})
			_, s := x.provider.Tracer("test").Start(x.Join(t.Context(), p.UID), "y")
			s.End()
			n := len(x.recorder.Ended()) - before
			if n != 0 && n != 3 {
				t.Fatalf("%d of 3 spans of pod %s are recorded", n, p.UID)
			}
			return n > 0
		}
		if !sampled(full) {
			t.Fatalf("pod %s is not sampled at rate 1", p.UID)
		}
		if sampled(some) {
			count++
			if !sampled(most) {
				t.Fatalf("pod %s is sampled only at the lower rate", p.UID)
			}
		}
	}
	if share := float64(count) / pods; math.Abs(share-rate) > 0.05 {
		t.Errorf("share of sampled pods %v, want %v", share, rate)
	}
}

// TestOff checks that a nil Tracer records nothing and allocates no memory.
func TestOff(t *testing.T) {
	var none *Tracer
	p, ctx := pod(uid), t.Context()
	if n := testing.AllocsPerRun(100, func() {
		none.Record(ctx, p, Span{Name: "x"})
		none.RecordRoot(ctx, p, Span{})
		if none.Join(ctx, p.UID) != ctx {
			t.Error("Join changed the context")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRandomIDs checks that spans outside the traces of pods get random IDs.
func TestRandomIDs(t *testing.T) {
	seen := map[any]bool{}
	for range 1000 {
		trace, span := IDs{}.NewIDs(t.Context())
		if !trace.IsValid() || !span.IsValid() || seen[trace] || seen[span] {
			t.Fatalf("IDs %s, %s", trace, span)
		}
		seen[trace], seen[span] = true, true
	}
}
