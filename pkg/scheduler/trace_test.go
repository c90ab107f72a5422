// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/daemon/tracetest"
	"keelson.dev/keelson/pkg/scheduler"
)

// TestTraces checks the trace spans of a pod that is rejected at first: one span for each attempt,
// the time in the queue until the last attempt, and the binding.
func TestTraces(t *testing.T) {
	server := testserver.Start(t, testserver.Options{})
	addAccount(t, server.Client)
	traces, spans := tracetest.Pods()
	followAs(t, server.Client, &configv1.KubeSchedulerConfiguration{}, func(c *scheduler.Config) { c.Traces = traces })
	p := create(t, server.Client, pod("a", nil))
	rejected := <-spans
	if rejected.Name() != "scheduler.decide" ||
		!strings.HasPrefix(rejected.Status().Description, "0/0 nodes are available") {
		t.Errorf("first span %s with status %+v", rejected.Name(), rejected.Status())
	}
	addNode(t, server.Client, "n", nil)
	var last time.Time
	for _, want := range []string{"scheduler.queue", "scheduler.decide", "scheduler.bind"} {
		s := <-spans
		for s.Name() == "scheduler.decide" && s.Status().Description != "" {
			s = <-spans // the attempt may have been repeated before the node was ready
		}
		if s.Name() != want || s.SpanContext().TraceID() != podtrace.TraceID(p.UID) {
			t.Errorf("span %s in trace %s, want %s", s.Name(), s.SpanContext().TraceID(), want)
		}
		if !last.IsZero() && s.StartTime() != last {
			t.Errorf("%s begins at %v, and the span before ends at %v", s.Name(), s.StartTime(), last)
		}
		if last = s.EndTime(); last.Before(s.StartTime()) {
			t.Errorf("%s from %v to %v", s.Name(), s.StartTime(), last)
		}
		if want == "scheduler.bind" {
			found := attribute.NewSet(s.Attributes()...)
			if node, _ := found.Value("k8s.node.name"); node.AsString() != "n" {
				t.Errorf("attributes %v", s.Attributes())
			}
		}
	}
}
