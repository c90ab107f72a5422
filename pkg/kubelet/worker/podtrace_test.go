// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// TestPodTrace checks the trace of a pod's start. It contains the spans of the start, its root span
// ends when the pod is ready or is deleted, and later syncs belong to other traces.
func TestPodTrace(t *testing.T) {
	for name, tc := range map[string]struct {
		sick  bool
		err   string // description of the root span's status
		last  string // name of the span that ends together with the root span
		spans []string
	}{
		"ready": {false, "", spanReady, []string{"create", "images", spanReady, "pod", "sandbox", "start", "syncPod",
			"volumes"}},
		"deleted before it is ready": {true, errDeletedEarly.Error(), "", []string{"create", "images", "pod", "sandbox",
			"start", "syncPod", "syncTerminatingPod", "volumes"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := tracetest.NewSpanRecorder()
				provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder),
					sdktrace.WithIDGenerator(podtrace.IDs{}))
				pod := testPod(v1.RestartPolicyAlways, "a")
				pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Second))
				pod.Spec.Containers[0].ReadinessProbe = probeOf("readiness")
				n := newTestNode(t, pod)
				n.sick["a"] = tc.sick
				n.tracer, n.traces = provider.Tracer("test"), podtrace.New(provider, sdktrace.AlwaysSample())
				n.start()
				defer n.stop()
				pass(time.Minute)
				n.remove(0, false)
				pass(time.Minute)

				var root sdktrace.ReadOnlySpan
				var names []string
				outside := 0
				ends := map[string]time.Time{}
				for _, s := range recorder.Ended() {
					if s.SpanContext().TraceID() != podtrace.TraceID(pod.UID) {
						outside++
						continue
					}
					names = append(names, s.Name())
					ends[s.Name()] = s.EndTime()
					if s.Name() == "pod" {
						root = s
					}
				}
				slices.Sort(names)
				if names = slices.Compact(names); !slices.Equal(names, tc.spans) {
					t.Errorf("spans of the pod's trace: %v, want %v", names, tc.spans)
				}
				if root == nil || root.Parent().IsValid() || root.StartTime() != pod.CreationTimestamp.Time ||
					root.Status().Description != tc.err {
					t.Fatalf("root span: %+v", root)
				}
				if tc.last != "" && ends[tc.last] != root.EndTime() {
					t.Errorf("the root ends at %v, and %s at %v", root.EndTime(), tc.last, ends[tc.last])
				}
				if outside == 0 {
					t.Error("all spans of the pod's life are in the trace of its start")
				}
			})
		})
	}
}
