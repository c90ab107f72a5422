// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/daemon/tracetest"
)

// TestPodTrace checks that the controller records the creation of a pod in the pod's trace.
func TestPodTrace(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	traces, spans := tracetest.Pods()
	controllertest.Run(t, s, controller.Options{}, func(d controller.Deps) (controller.Controller, error) {
		d.Traces = traces
		return New(d)
	})
	set := example(1)
	set.UID = ""
	if _, err := s.Client.AppsV1().ReplicaSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	span := <-spans
	pods, err := s.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	if span.Name() != "controller.create" || span.SpanContext().TraceID() != podtrace.TraceID(pods.Items[0].UID) {
		t.Errorf("span %s in trace %s", span.Name(), span.SpanContext().TraceID())
	}
	attributes := attribute.NewSet(span.Attributes()...)
	for key, want := range map[attribute.Key]string{"keelson.owner.kind": "ReplicaSet", "keelson.owner.name": "rs",
		"k8s.pod.name": pods.Items[0].Name} {
		if v, _ := attributes.Value(key); v.AsString() != want {
			t.Errorf("%s is %q, want %q", key, v.AsString(), want)
		}
	}
}
