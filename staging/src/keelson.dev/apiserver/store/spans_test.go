// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/api/clock"
)

// recorded calls f with the context of a span, and returns the spans below it, in the order in which
// they ended: their names, followed by the names of their events.
func recorded(t *testing.T, f func(ctx context.Context)) [][]string {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, _ := provider.Tracer("test").Start(patient(t), "request")
	f(ctx)
	var all [][]string
	for _, span := range recorder.Ended() {
		line := []string{span.Name()}
		for _, e := range span.Events() {
			line = append(line, e.Name)
		}
		all = append(all, line)
	}
	return all
}

func checkSpans(t *testing.T, got [][]string, want ...[]string) {
	t.Helper()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("spans:\n%q\nwant:\n%q", got, want)
	}
}

// TestSpansOfStorage checks the spans of reads that the cache cannot answer. TestRequestSpans of the
// API server has the usual spans.
func TestSpansOfStorage(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	first := create(t, e.store, newThing("ns", "a"))
	idle := New(Config{
		Backend: NewBackend(BackendConfig{KV: e.kv, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)}),
		Prefix:  "things", GroupResource: things, Codec: thingCodec{}, Attrs: thingAttrs,
	})
	checkSpans(t, recorded(t, func(ctx context.Context) {
		if _, err := idle.Get(ctx, "ns/a", ""); err != nil { // the cache is not loaded
			t.Error(err)
		}
	}), []string{"Get etcd3", "Get call succeeded", "Decode succeeded"})

	checkSpans(t, recorded(t, func(ctx context.Context) {
		opts := ListOptions{Predicate: Predicate{Fields: fields.OneTermEqualSelector("spec.nodeName", "n")}}
		if _, err := e.store.List(ctx, opts); err != nil {
			t.Error(err)
		}
	}), []string{"cacher.GetList", "Ready", "getCurrentRV success", "watchCache fresh enough",
		"watchCache locked acquired", "GetByIndexSnapshot success", "Listed items from cache", "Filtered items"})

	e.backend.compacted.Store(1 << 40) // so that the list of a past revision reads the storage
	checkSpans(t, recorded(t, func(ctx context.Context) {
		opts := ListOptions{ResourceVersion: formatRevision(first.Revision), Match: metav1.ResourceVersionMatchExact}
		if _, err := e.store.List(ctx, opts); err != nil {
			t.Error(err)
		}
	}), []string{"List(recursive=true) etcd3"}, []string{"cacher.GetList", "Ready", "watchCache fresh enough"})
}

// TestSpanOfConflict checks the span of an update that another write overtakes. The function passed
// to Update must get the span of Update's caller, not the span of the update.
func TestSpanOfConflict(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	create(t, e.store, newThing("ns", "a"))
	if _, err := e.store.List(patient(t), ListOptions{}); err != nil { // waits until the cache is loaded
		t.Fatal(err)
	}
	attempts := 0
	attempt := []string{"About to Encode", "Encode succeeded", "Transaction prepared", "Txn call completed"}
	want := append([]string{"GuaranteedUpdate etcd3", "initial value restored"}, attempt...)
	want = append(append(append(want, "Retry value restored"), attempt...), "Transaction committed")
	checkSpans(t, recorded(t, func(ctx context.Context) {
		caller := trace.SpanFromContext(ctx)
		_, err := e.store.Update(ctx, "ns/a", func(ctx context.Context, cur *Record) (Object, error) {
			if trace.SpanFromContext(ctx) != caller {
				t.Error("the function did not get the span of Update's caller")
			}
			if attempts++; attempts == 1 {
				update(t, e.store, "ns/a", func(th *thing) { th.Node = "other" })
			}
			obj, err := cur.Object()
			if err == nil {
				obj.(*thing).Labels = map[string]string{"attempt": fmt.Sprint(attempts)}
			}
			return obj, err
		})
		if err != nil {
			t.Error(err)
		}
	}), want)
}

// TestSpanAttributes checks the attributes of the spans of one object and of a list.
func TestSpanAttributes(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	e.store.TypeName = "*example.Thing"
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, _ := provider.Tracer("test").Start(patient(t), "request")
	first, err := e.store.Create(ctx, "ns/a", newThing("ns", "a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	e.backend.compacted.Store(1 << 40)
	rv := formatRevision(first.Revision)
	opts := ListOptions{Predicate: Predicate{Namespace: "ns"}, ResourceVersion: rv,
		Match: metav1.ResourceVersionMatchExact, Limit: 7}
	if _, err := e.store.List(ctx, opts); err != nil {
		t.Fatal(err)
	}
	want := map[string][]attribute.KeyValue{
		"Create etcd3": {attribute.String("key", "/things/ns/a"), attribute.String("group", "example.com"),
			attribute.String("resource", "things"), attribute.String("type", "*example.Thing")},
		"List(recursive=true) etcd3": {attribute.String("key", "/things/ns/"), attribute.Int64("limit", 7),
			attribute.String("resourceVersion", rv), attribute.String("resourceVersionMatch", "Exact"),
			attribute.String("continue", "")},
		"cacher.GetList": {attribute.String("type", "things.example.com")},
	}
	for _, span := range recorder.Ended() {
		for _, a := range want[span.Name()] {
			if !slices.Contains(span.Attributes(), a) {
				t.Errorf("%s has %v, want %v", span.Name(), span.Attributes(), a)
			}
		}
		delete(want, span.Name())
	}
	if len(want) > 0 {
		t.Errorf("missing spans: %v", want)
	}
}
