// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podsapi

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"keelson.dev/apiserver/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newPod(uid types.UID, s v1.PodStatus) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "pod-" + string(uid), UID: uid},
		Spec: v1.PodSpec{NodeName: "node"}, Status: s}
}

// fakeSource has pod a, whose status this process knows, and pod b, whose status it does not know.
type fakeSource struct{ ready *atomic.Bool }

func (f fakeSource) Ready() bool { return f.ready.Load() }

func (fakeSource) Pods() []*v1.Pod {
	return []*v1.Pod{
		newPod("b", v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}),
		newPod("a", v1.PodStatus{Phase: v1.PodPending}),
	}
}

func (fakeSource) Status(uid types.UID) (v1.PodStatus, bool) {
	return v1.PodStatus{Phase: v1.PodRunning}, uid == "a"
}

// describe returns the important parts of an encoded pod.
func describe(t *testing.T, data []byte) string {
	t.Helper()
	var pod v1.Pod
	if err := pod.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("%s/%s %s %s", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		out += fmt.Sprintf(" %s=%s %s", c.Type, c.Status, c.Reason)
	}
	return strings.TrimSpace(out)
}

func TestServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "k") // a short path, because names of sockets have a maximum length
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "pods-api", "pods-api.sock")
	registry := prometheus.NewRegistry()
	source, changes := fakeSource{&atomic.Bool{}}, NewChanges(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(socket, source, changes, registry).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := api.NewPodsClient(conn)
	if _, err := client.ListPods(t.Context(), &api.ListPodsRequest{}, grpc.WaitForReady(true)); status.Code(err) !=
		codes.FailedPrecondition || status.Convert(err).Message() != "Kubelet is initializing" {
		t.Errorf("before all pods are known: %v", err)
	}
	source.ready.Store(true)
	const podA, podB = "n/pod-a node Running", "n/pod-b node Pending Ready=False ContainersNotReady"
	list, err := client.ListPods(t.Context(), &api.ListPodsRequest{})
	if err != nil || len(list.GetPods()) != 2 || describe(t, list.GetPods()[0]) != podA ||
		describe(t, list.GetPods()[1]) != podB {
		t.Fatal(list, err)
	}
	got, err := client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "a"})
	if err != nil || describe(t, got.GetPod()) != podA {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "c"}); status.Code(err) != codes.NotFound ||
		status.Convert(err).Message() != "pod with UID c not found" {
		t.Errorf("missing pod: %v", err)
	}

	watching, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	w, err := client.WatchPods(watching, &api.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		ev, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got := ev.GetType().String()
		if ev.GetPod() != nil {
			got += " " + describe(t, ev.GetPod())
		}
		if got != want {
			t.Errorf("event %s, want %s", got, want)
		}
	}
	expect("ADDED " + podA)
	expect("ADDED " + podB)
	expect("INITIAL_SYNC_COMPLETE")
	changes.Updated(newPod("c", v1.PodStatus{}), v1.PodStatus{Phase: v1.PodPending})
	changes.Updated(newPod("c", v1.PodStatus{}), v1.PodStatus{Phase: v1.PodRunning})
	changes.Removed(newPod("d", v1.PodStatus{})) // no status of this pod was reported
	changes.Removed(newPod("c", v1.PodStatus{}))
	expect("ADDED n/pod-c node Pending")
	expect("MODIFIED n/pod-c node Running")
	expect("DELETED n/pod-d")
	expect("DELETED n/pod-c")
	unwatch()
	if _, err := w.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("after the end: %v", err)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kubelet_pod_requests_get_total [ALPHA] Number of requests to the PodsAPI Get endpoint. `+
		`Broken down by server api version and status code.
# TYPE kubelet_pod_requests_get_total counter
kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1
kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="OK"} 1
# HELP kubelet_pod_requests_list_total [ALPHA] Number of requests to the PodsAPI List endpoint. `+
		`Broken down by server api version and status code.
# TYPE kubelet_pod_requests_list_total counter
kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="FailedPrecondition"} 1
kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="OK"} 1
`), "kubelet_pod_requests_get_total", "kubelet_pod_requests_list_total"); err != nil {
		t.Error(err)
	}
}

// TestFinishedPod checks that no event of a pod follows its DELETED event, although the last status of a pod is
// reported after the pod's resources were released. It also checks that a forgotten pod leaves no record.
func TestFinishedPod(t *testing.T) {
	changes := NewChanges(slog.New(slog.DiscardHandler))
	events, stop := changes.watch()
	defer stop()
	pod := newPod("a", v1.PodStatus{})
	changes.Updated(pod, v1.PodStatus{Phase: v1.PodRunning})
	changes.Removed(pod)
	changes.Updated(pod, v1.PodStatus{Phase: v1.PodSucceeded})
	changes.Removed(pod)
	changes.Forget(pod.UID)
	if len(changes.known) != 0 {
		t.Errorf("known pods after Forget: %v", changes.known)
	}
	changes.Updated(pod, v1.PodStatus{Phase: v1.PodPending})
	var got []string
	for len(events) > 0 {
		ev := <-events
		got = append(got, ev.GetType().String()+" "+describe(t, ev.GetPod()))
	}
	want := []string{"ADDED n/pod-a node Running", "DELETED n/pod-a", "ADDED n/pod-a node Pending"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestSlowWatch checks that a watch that does not keep up is ended, and that other watches go on.
func TestSlowWatch(t *testing.T) {
	changes := NewChanges(slog.New(slog.DiscardHandler))
	slow, stopSlow := changes.watch()
	defer stopSlow()
	fast, stopFast := changes.watch()
	defer stopFast()
	for range pending + 1 {
		changes.Updated(newPod("a", v1.PodStatus{}), v1.PodStatus{Phase: v1.PodRunning})
		if ev := <-fast; ev.GetPod() == nil {
			t.Fatal("event without a pod")
		}
	}
	n := 0
	for range slow {
		n++
	}
	if n != pending || testutil.ToFloat64(changes.dropped) != 1 {
		t.Errorf("%d events and %v dropped, want %d and 1", n, testutil.ToFloat64(changes.dropped), pending)
	}
}
