// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
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

// testScheduler returns a scheduler with one node of 4 CPUs. No goroutine of it runs.
func testScheduler(t *testing.T) *Scheduler {
	t.Helper()
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
	s.nodeSet(testNode("n", 4000, "", ""))
	return s
}

// sizedPod returns a pod that requests cpus. It runs on the node if node is not "".
func sizedPod(name string, priority int32, cpus, node string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, NodeName: node, Priority: &priority,
			Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus)}}}}}}
}

// pop returns the next pod to try, or nil if all pods wait.
func pop(t *testing.T, s *Scheduler) *queue.Item {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	item, err := s.queue.Pop(ctx)
	if err != nil {
		return nil
	}
	return item
}

// try decides about the next pod, which must be the given pod.
func try(t *testing.T, s *Scheduler, name string) decision {
	t.Helper()
	item := pop(t, s)
	if item == nil || item.Pod.Name != name {
		t.Fatalf("the next pod is %+v, want %s", item, name)
	}
	return decideItem(t, s, item)
}

func decideItem(t *testing.T, s *Scheduler, item *queue.Item) decision {
	t.Helper()
	d, err := s.decide(s.cfg.Profiles.Profiles[v1.DefaultSchedulerName], item)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRoomByEviction checks that a pod is tried again when a pod leaves a node on which it would now
// fit without pods of lower priority.
func TestRoomByEviction(t *testing.T) {
	never := v1.PreemptNever
	for name, c := range map[string]struct {
		cpus   string
		policy *v1.PreemptionPolicy
		woken  bool
	}{
		"makes room":       {cpus: "3", woken: true},
		"does not fit":     {cpus: "5"},
		"must not preempt": {cpus: "3", policy: &never},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScheduler(t)
			high := sizedPod("high", 100, "2", "n")
			s.podSet(nil, high)
			s.podSet(nil, sizedPod("low", 0, "2", "n"))
			waits := sizedPod("waits", 50, c.cpus, "")
			waits.Spec.PreemptionPolicy = c.policy
			s.podSet(nil, waits)
			if d := try(t, s, "waits"); d.node != "" || d.nominate != "" {
				t.Fatalf("placed on %q, nominated to %q", d.node, d.nominate)
			}
			s.podGone(high)
			if !c.woken {
				if item := pop(t, s); item != nil {
					t.Errorf("pod %s is tried again", item.Pod.Name)
				}
				return
			}
			if d := try(t, s, "waits"); d.nominate != "n" || len(d.victims) != 1 {
				t.Errorf("nominated to %q with %d victims", d.nominate, len(d.victims))
			}
		})
	}
}
