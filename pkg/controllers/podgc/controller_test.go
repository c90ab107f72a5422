// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestSurplus(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := func(name string, hour int, reason string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name,
				CreationTimestamp: metav1.NewTime(day.Add(time.Duration(hour) * time.Hour))},
			Status: v1.PodStatus{Phase: v1.PodFailed, Reason: reason},
		}
	}
	ended := func() []*v1.Pod {
		return []*v1.Pod{pod("new", 3, ""), pod("evicted", 4, "Evicted"), pod("old", 1, ""), pod("b", 2, ""), pod("a", 2, "")}
	}
	for _, tc := range []struct {
		keep int
		want []string
	}{
		{0, nil}, {-1, nil}, {5, nil}, {4, []string{"evicted"}}, {3, []string{"evicted", "old"}},
		{1, []string{"evicted", "old", "a", "b"}},
	} {
		var got []string
		for _, p := range surplus(ended(), tc.keep) {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("keep %d: %v, want %v", tc.keep, got, tc.want)
		}
	}
}

func TestSweep(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	ctx := t.Context()
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.Client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makeNode(t, s.Client, "down", v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown",
		Effect: v1.TaintEffectNoExecute})
	makeNode(t, s.Client, "silent")
	makeNode(t, s.Client, "up")
	for name, node := range map[string]string{"unplaced": "", "fenced": "down", "waiting": "silent",
		"ended": "up", "running": "up"} {
		makePod(t, s.Client, name, node)
	}
	setPhase(t, s.Client, "ended", v1.PodSucceeded)
	setPhase(t, s.Client, "running", v1.PodRunning)
	for _, name := range []string{"unplaced", "fenced", "waiting"} {
		if err := s.Client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := prometheus.NewRegistry()
	controllertest.Run(t, s, controller.Options{EndedPods: 1}, controllertest.WithMetrics(r, New))
	controllertest.Eventually(t, "pods that nobody else removes are gone", func(ctx context.Context) (any, bool) {
		gone := 0
		for _, name := range []string{"unplaced", "fenced"} {
			if _, err := s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
				gone++
			}
		}
		return gone, gone == 2
	})
	controllertest.Eventually(t, "the deletion of the fenced pod is counted", func(context.Context) (any, bool) {
		got := controllertest.Metrics(t, r)
		const prefix = "pod_gc_collector_force_delete_pods_total{namespace=default,reason="
		return got, got[prefix+"out-of-service}"] > 0 && got[prefix+"orphaned}"] == 0
	})
	for _, name := range []string{"waiting", "ended", "running"} {
		if _, err := s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnscheduledTerminating checks that pods without a node that are being deleted get the phase
// Failed. No kubelet sets it, and the owners of finalizers may wait until a pod has ended.
func TestUnscheduledTerminating(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	pods := s.Client.CoreV1().Pods("default")
	specs := map[string]v1.PodSpec{
		"pending": {}, "gated": {SchedulingGates: []v1.PodSchedulingGate{{Name: "example.com/hold"}}},
	}
	for name, spec := range specs {
		spec.Containers = []v1.Container{{Name: "c", Image: "c"}}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/count"}}, Spec: spec}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.RunAs(t, s, "pod-garbage-collector", controller.Options{}, New)
	for name := range specs {
		controllertest.Eventually(t, "the pod "+name+" has failed", func(ctx context.Context) (any, bool) {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			return pod.Status.Phase, pod.Status.Phase == v1.PodFailed
		})
	}
}

func makeNode(t *testing.T, client kubernetes.Interface, name string, taints ...v1.Taint) {
	t.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Taints: taints}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// makePod creates a pod. If it has a node, it has a grace period, so that it still exists after it
// was deleted.
func makePod(t *testing.T, client kubernetes.Interface, name, node string) {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "c"}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func setPhase(t *testing.T, client kubernetes.Interface, name string, phase v1.PodPhase) {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = phase
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
