// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// scrape returns the values of counters and gauges, and the sample counts of histograms. The key
// has the metric's name and label values.
func scrape(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			key := []string{f.GetName()}
			for _, l := range x.GetLabel() {
				key = append(key, l.GetValue())
			}
			got[strings.Join(key, " ")] = x.GetCounter().GetValue() + x.GetGauge().GetValue() +
				float64(x.GetHistogram().GetSampleCount())
		}
	}
	return got
}

// TestFrameworkMetrics checks the metrics of extension points, plugins, the queue and events after
// one pod was placed, one was rejected and one was gated.
func TestFrameworkMetrics(t *testing.T) {
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	s, err := New(Config{
		Client: fake.NewSimpleClientset(), Profiles: set, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, 2)),
		Log: slog.New(slog.DiscardHandler), Metrics: r,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := s.handlers()
	for _, node := range []string{"a", "b"} {
		h.nodes.OnAdd(testNode(node, 1000, "", ""), false)
	}
	p := set.Profiles[v1.DefaultSchedulerName]
	decide := func(cpu string) decision {
		t.Helper()
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: cpu, Namespace: "default", UID: types.UID(cpu)},
			Spec: v1.PodSpec{SchedulerName: p.Name, Containers: []v1.Container{{Name: "c", Image: "i",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}}}
		h.podSet(nil, pod)
		item, err := s.queue.Pop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d, err := s.decide(p, item)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := decide("1"); d.node == "" {
		t.Fatal("rejected: ", d.message)
	}
	if d := decide("8"); d.node != "" {
		t.Fatal("placed on ", d.node)
	}
	h.podSet(nil, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gated", UID: "gated"}, Spec: v1.PodSpec{
		SchedulerName: p.Name, SchedulingGates: []v1.PodSchedulingGate{{Name: "g"}}}})
	got := scrape(t, r)
	for name, want := range map[string]float64{
		"scheduler_framework_extension_point_duration_seconds PreEnqueue default-scheduler Success":                      2,
		"scheduler_framework_extension_point_duration_seconds PreEnqueue default-scheduler UnschedulableAndUnresolvable": 1,
		"scheduler_framework_extension_point_duration_seconds PreFilter default-scheduler Success":                       2,
		"scheduler_framework_extension_point_duration_seconds Filter default-scheduler Success":                          2,
		"scheduler_framework_extension_point_duration_seconds Score default-scheduler Success":                           1,
		"scheduler_framework_extension_point_duration_seconds PostFilter default-scheduler Unschedulable":                1,
		"scheduler_framework_extension_point_duration_seconds Reserve default-scheduler Success":                         1,
		"scheduler_plugin_evaluation_total PreFilter NodeResourcesFit default-scheduler":                                 2,
		"scheduler_plugin_evaluation_total Filter NodeResourcesFit default-scheduler":                                    4,
		"scheduler_plugin_evaluation_total Score NodeResourcesFit default-scheduler":                                     2,
		"scheduler_plugin_execution_duration_seconds Filter NodeResourcesFit Success":                                    2,
		"scheduler_pending_pods gated":                                                     1,
		"scheduler_queued_entities gated pod":                                              1,
		"scheduler_queued_entities active pod":                                             0,
		"scheduler_queue_incoming_entities_total ScheduleAttemptFailure unschedulable pod": 1,
		"scheduler_pending_pods unschedulable":                                             1,
		"scheduler_inflight_events PodPopped":                                              1,
		"scheduler_unschedulable_pods NodeResourcesFit default-scheduler":                  1,
		"scheduler_unschedulable_pods SchedulingGates default-scheduler":                   1,
		"scheduler_queue_incoming_pods_total UnscheduledPodAdd active":                     2,
		"scheduler_queue_incoming_pods_total UnscheduledPodAdd unschedulable":              1,
		"scheduler_queue_incoming_pods_total ScheduleAttemptFailure unschedulable":         1,
		"scheduler_event_handling_duration_seconds NodeAdd":                                2,
		"scheduler_event_handling_duration_seconds UnscheduledPodAdd":                      3,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if n := len(s.evaluator.meter.profiles); n != 1 {
		t.Errorf("%d profiles were measured, want 1", n)
	}
}

// TestSampling checks that plugins are timed in one of ten evaluations, and that at most maxTimed
// calls are timed in it.
func TestSampling(t *testing.T) {
	m := newMeter(clock.Real(), nil)
	sampled := 0
	for range 3 * sampleEvery {
		m.begin()
		if m.timed() {
			sampled++
		}
	}
	if sampled != 3 {
		t.Errorf("%d of %d evaluations are sampled", sampled, 3*sampleEvery)
	}
	m.begin()
	by := []*pluginMeter{{}}
	accept := []scheduling.Filter{{Check: func(*scheduling.Node) *scheduling.Status { return nil }}}
	calls := 0
	for ; m.timed(); calls++ {
		m.first(accept, by, nil)
	}
	if calls != maxTimed {
		t.Errorf("%d calls are timed, want %d", calls, maxTimed)
	}
}

// TestPodResources checks the metrics at /metrics/resources for one pod's requests and limits.
func TestPodResources(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: v1.PodSpec{
		NodeName: "n", SchedulerName: "s", Priority: ptr.To[int32](7),
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), "example.com/gpu": resource.MustParse("2")},
			Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ki"), v1.ResourceCPU: resource.MustParse("0")},
		}}},
	}}
	r := prometheus.NewRegistry()
	c := (&Scheduler{sources: &sources{}}).PodResources().(podResources)
	c.pods = func() map[types.NamespacedName]*v1.Pod { return map[types.NamespacedName]*v1.Pod{{}: pod} }
	r.MustRegister(c)
	got := scrape(t, r)
	for name, want := range map[string]float64{
		"kube_pod_resource_request ns n p 7 cpu s cores":        0.25,
		"kube_pod_resource_request ns n p 7 example.com/gpu s ": 2,
		"kube_pod_resource_limit ns n p 7 memory s bytes":       1024,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
		}
	}
	if len(got) != 3 {
		t.Errorf("got %v", got)
	}
}
