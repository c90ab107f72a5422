// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
)

// family returns the metric family with the given name, or nil.
func family(t *testing.T, from prometheus.Gatherer, name string) *dto.MetricFamily {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name }); i >= 0 {
		return families[i]
	}
	return nil
}

// TestLibraryMetrics checks that a process exports the metrics of client-go's work queues and REST
// clients, of the Go runtime and of the process.
func TestLibraryMetrics(t *testing.T) {
	m := NewMetrics()
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: t.Name()})
	defer queue.ShutDown()
	queue.Add("a")
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("the server has a version")
	}
	depth := 0.0
	for _, s := range family(t, m, "workqueue_depth").GetMetric() {
		if s.GetLabel()[0].GetValue() == t.Name() {
			depth = s.GetGauge().GetValue()
		}
	}
	if depth != 1 {
		t.Errorf("depth of the queue is %v", depth)
	}
	for _, name := range []string{"rest_client_requests_total", "rest_client_request_duration_seconds", "go_goroutines",
		"process_cpu_seconds_total", "workqueue_adds_total"} {
		if family(t, m, name) == nil {
			t.Errorf("no %s", name)
		}
	}
}

// TestOwnMetricFirst checks that a process's own metric replaces a library's metric of the same
// name, and that the result is sorted.
func TestOwnMetricFirst(t *testing.T) {
	m := NewMetrics()
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "ours"},
		func() float64 { return 0 }))
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.GetName()
		if f.GetName() == "go_goroutines" && f.GetHelp() != "ours" {
			t.Errorf("served %q", f.GetHelp())
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != len(families) {
		t.Errorf("not sorted, or not unique: %q", names)
	}
}
