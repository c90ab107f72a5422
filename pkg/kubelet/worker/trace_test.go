// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	v1 "k8s.io/api/core/v1"
)

// TestTraceOfAPod checks that each sync of a pod is recorded as a span, and that the spans of a
// pod's start are children of the span of the sync that started the pod.
func TestTraceOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		pod := testPod(v1.RestartPolicyAlways, "a")
		n := newTestNode(t, pod)
		n.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
		n.runtime.failures["RunSandbox"] = 1
		n.start()
		defer n.stop()
		pass(time.Minute)
		n.remove(0, false)
		pass(time.Minute)

		kinds := map[string]int{}
		for _, s := range recorder.Ended() {
			for _, a := range s.Attributes() {
				if a.Key == "k8s.pod.update_type" {
					kinds[s.Name()+" "+a.Value.AsString()]++
				}
			}
		}
		if kinds["syncPod create"] != 1 || kinds["syncPod sync"] == 0 || len(kinds) > 3 {
			t.Errorf("kinds of looks: %v", kinds)
		}
		parts, failed := map[string][]string{}, 0
		var names []string
		for _, s := range recorder.Ended() {
			if !s.Parent().IsValid() {
				names = append(names, s.Name())
				if !slices.Contains(s.Attributes(), attribute.String("k8s.pod.uid", string(pod.UID))) {
					t.Errorf("%s has attributes %v", s.Name(), s.Attributes())
				}
				if s.Status().Description != "" {
					failed++
				}
				continue
			}
			id := s.Parent().SpanID().String()
			parts[id] = append(parts[id], s.Name())
		}
		for _, want := range []string{"syncPod", "syncTerminatingPod", "syncTerminatedPod"} {
			if !slices.Contains(names, want) {
				t.Errorf("looks are %v, without %s", names, want)
			}
		}
		var starts [][]string
		for _, list := range parts {
			starts = append(starts, list)
		}
		slices.SortFunc(starts, func(a, b []string) int { return len(a) - len(b) })
		if want := [][]string{{"volumes", "sandbox"},
			{"volumes", "sandbox", "images", "create", "start"}}; !slices.EqualFunc(starts, want, slices.Equal) {
			t.Errorf("phases %v, want %v", starts, want)
		}
		if failed != 1 {
			t.Errorf("%d looks say that they failed, and one did", failed)
		}
	})
}
