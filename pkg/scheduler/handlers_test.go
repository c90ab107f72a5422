// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// TestLateEvents checks that an event about a bound pod that arrives late does not requeue the pod,
// and that an event about a pod in flight updates the pod.
func TestLateEvents(t *testing.T) {
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Client: fake.NewSimpleClientset(), Profiles: set, Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, 2)),
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName}}
	s.nodeSet(testNode("a", 1000, "", ""))
	s.podSet(nil, pod)
	item, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := set.Profiles[v1.DefaultSchedulerName]
	d, err := s.decide(p, item)
	if err != nil || d.node != "a" {
		t.Fatalf("decided for %q, %v; want a", d.node, err)
	}
	updated := pod.DeepCopy()
	updated.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}
	s.podSet(pod, updated)
	if s.queue.Get(pod.UID) != updated {
		t.Error("an update during the try was lost")
	}
	s.finish(t.Context(), p, item, d, s.cfg.Clock.Now(), nil, true)
	s.podSet(updated, updated.DeepCopy())
	if s.queue.Get(pod.UID) != nil {
		t.Error("a bound pod is tried again")
	}
}
