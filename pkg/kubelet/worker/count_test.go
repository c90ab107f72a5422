// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

// scrape returns the current values of the pod metrics in r and of the metrics that count workers.
func (n *testNode) scrape(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	state := prometheus.NewRegistry()
	state.MustRegister(&metrics.State{Census: n.pool.Census, Counts: func() metrics.Counts { return metrics.Counts{} }})
	return metricstest.Scrape(t, prometheus.Gatherers{r, state})
}

// TestPodMetrics checks the metrics of a pod from the start of its sandbox to the end of its
// worker. The sandbox and the first container fail to start at the first attempt, so they are
// started twice.
func TestPodMetrics(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "i:x", "a", "b")
	pod.Spec.HostUsers = new(bool)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "e"}}}
	n, r := newTestNode(t, pod), prometheus.NewRegistry()
	n.metrics = metrics.NewPods(r)
	n.runtime.failures["RunSandbox"], n.runtime.failures["StartContainer"] = 1, 1
	n.runtime.slow["a"] = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		n.start()
		defer n.stop()
		pass(time.Minute)
		n.runtime.die(n.runtime.running("x"), 0)
		pass(time.Minute)
		got := n.scrape(t, r)
		metricstest.Expect(t, got, map[string]float64{
			"kubelet_started_pods_total": 2, "kubelet_started_pods_errors_total": 1,
			"kubelet_started_user_namespaced_pods_total": 2, "kubelet_started_user_namespaced_pods_errors_total": 2,
			`kubelet_started_containers_total{container_type="container"}`:                                      2,
			`kubelet_started_containers_total{container_type="ephemeral_container"}`:                            1,
			`kubelet_started_containers_total{container_type="init_container"}`:                                 2,
			`kubelet_started_containers_errors_total{code="RunContainerError",container_type="init_container"}`: 1,
			"kubelet_pod_worker_start_duration_seconds_count":                                                   1,
			"kubelet_containers_per_pod_count_sum":                                                              2,
			`kubelet_pod_worker_duration_seconds_count{operation_type="create"}`:                                1,
			`kubelet_pod_worker_duration_seconds_count{operation_type="kill"}`:                                  -1,
			"kubelet_running_pods": 1, `kubelet_running_containers{container_state="running"}`: 3,
			`kubelet_running_containers{container_state="exited"}`:              2,
			`kubelet_working_pods{config="desired",lifecycle="sync",static=""}`: 1,
		})
		n.remove(30, false)
		pass(time.Second)
		metricstest.Expect(t, n.scrape(t, r), map[string]float64{
			`kubelet_working_pods{config="desired",lifecycle="sync",static=""}`:        0,
			`kubelet_working_pods{config="desired",lifecycle="terminating",static=""}`: 1,
		})
		pass(time.Minute)
		metricstest.Expect(t, n.scrape(t, r), map[string]float64{
			`kubelet_pod_worker_duration_seconds_count{operation_type="kill"}`:         1,
			`kubelet_pod_worker_duration_seconds_sum{operation_type="kill"}`:           3,
			`kubelet_pod_worker_duration_seconds_count{operation_type="terminated"}`:   1,
			`kubelet_working_pods{config="desired",lifecycle="terminating",static=""}`: 0,
			"kubelet_running_pods": 0, "kubelet_orphaned_runtime_pods_total": 0,
		})
	})
}

// TestOrphanMetrics checks that a pod that exists only in the runtime is counted with labels of its
// own, and that it is no longer counted when it has ended.
func TestOrphanMetrics(t *testing.T) {
	n, r := newTestNode(t, testPod(v1.RestartPolicyAlways, "a")), prometheus.NewRegistry()
	n.metrics = metrics.NewPods(r)
	n.runtime.slow["a"] = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		n.start()
		pass(time.Second)
		n.stop()
		n.mu.Lock()
		n.api = nil // the restarted kubelet does not find the pod in the API
		n.mu.Unlock()
		n.start()
		defer n.stop()
		pass(time.Second)
		metricstest.Expect(t, n.scrape(t, r), map[string]float64{
			"kubelet_orphaned_runtime_pods_total":                                                  1,
			`kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"}`: 1,
		})
		pass(time.Minute)
		metricstest.Expect(t, n.scrape(t, r),
			map[string]float64{`kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"}`: 0})
	})
}

// TestRejectedPodMetrics checks the metric of a pod that is rejected because it requests 2 CPUs and
// the node has only 1 CPU left.
func TestRejectedPodMetrics(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	setResources(pod, "a", "2", "1Mi")
	n, r := newTestNode(t, pod), prometheus.NewRegistry()
	n.metrics = metrics.NewPods(r)
	synctest.Test(t, func(t *testing.T) {
		n.start()
		defer n.stop()
		pass(time.Second)
		metricstest.Expect(t, n.scrape(t, r),
			map[string]float64{`kubelet_admission_rejections_total{reason="OutOfcpu"}`: 1, "kubelet_started_pods_total": 0})
	})
}
