// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package extender

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// TestFilterAnswers checks that Filter returns an error if the extender's response is wrong or
// missing.
func TestFilterAnswers(t *testing.T) {
	ended := make(chan struct{})
	defer close(ended)
	nodes := []*v1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string // names of nodes, or a part of the error
	}{
		"correct": {func(w http.ResponseWriter) {
			_, _ = w.Write([]byte(`{"NodeNames":["b"],"FailedNodes":{"a":"no"}}`))
		}, "b"},
		"unknown node": {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"NodeNames":["c"]}`)) },
			"not found in the input node list"},
		"twice": {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"NodeNames":["b","b"]}`)) },
			"not found in the input node list"},
		"error":        {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"Error":"broken"}`)) }, "broken"},
		"not JSON":     {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`<html>`)) }, "answer to filter"},
		"status code":  {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, "code 418"},
		"hangs":        {func(http.ResponseWriter) { <-ended }, "extender"},
		"empty answer": {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{}`)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
			t.Cleanup(func() { s.CloseClientConnections() })
			timeout := time.Minute
			if name == "hangs" {
				timeout = 20 * time.Millisecond
			}
			e, err := New(configv1.Extender{URLPrefix: s.URL, FilterVerb: "filter", NodeCacheCapable: true,
				HTTPTimeout: metav1.Duration{Duration: timeout}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Filter(t.Context(), &v1.Pod{}, nodes)
			said := ""
			for _, n := range got.Nodes {
				said += n.Name
			}
			if err != nil {
				said = err.Error()
			}
			if !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

func TestInterested(t *testing.T) {
	e, err := New(configv1.Extender{URLPrefix: "http://x",
		ManagedResources: []configv1.ExtenderManagedResource{{Name: "example.com/gpu", IgnoredByScheduler: true}}})
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}
	if e.Interested(pod) {
		t.Error("interested in a pod without its resource")
	}
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": {}}
	if !e.Interested(pod) {
		t.Error("not interested in a pod with its resource")
	}
	if got := e.IgnoredResources(); len(got) != 1 || got[0] != "example.com/gpu" {
		t.Errorf("ignored %v", got)
	}
}
