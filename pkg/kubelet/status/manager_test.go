// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
	"keelson.dev/keelson/pkg/kubelet/source"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// TestPatchKeepsDisruptionTarget checks that a patch does not remove a DisruptionTarget condition
// that another client has written, even if the kubelet has not read that version of the pod.
func TestPatchKeepsDisruptionTarget(t *testing.T) {
	disrupted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByTaintManager"}
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	own := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet}
	known := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{disrupted}}}
	for name, c := range map[string]struct {
		want []v1.PodCondition
		text string // the text of the patch
	}{
		"others'": {[]v1.PodCondition{ready}, `{"metadata":{"uid":""},` +
			`"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"},{"type":"Ready"}],"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"status":"True","type":"Ready"}]}}`},
		"kubelet's condition": {[]v1.PodCondition{own}, `{"metadata":{"uid":""},` +
			`"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"}],"conditions":[{"reason":"TerminationByKubelet","type":"DisruptionTarget"}]}}`},
	} {
		patch, err := status.Patch(known, v1.PodStatus{Conditions: c.want})
		if got := string(patch); err != nil || got != c.text {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func statusWithEnd(id string) v1.PodStatus {
	return v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id,
			ExitCode: 139, Reason: "Error"}},
	}}}
}

const ends = `kubelet_terminated_containers_total{container_type="container",exit_code="139",reason="Error"}`

// TestTerminationsAreCountedOnce checks that after a restart the kubelet does not count a
// container's termination that the status in the API already shows. For a static pod, this is the
// status of its mirror.
func TestTerminationsAreCountedOnce(t *testing.T) {
	static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s",
		Annotations: map[string]string{source.AnnotationSource: source.File}}}
	r := prometheus.NewRegistry()
	m := status.NewManager(status.Config{
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Metrics: metrics.NewPods(r),
		Mirror: func(*v1.Pod) *v1.Pod { return &v1.Pod{Status: statusWithEnd("1")} },
	})
	for _, pod := range []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"},
		Status: statusWithEnd("1")}, static} {
		m.Observe(pod)
		m.Set(pod, statusWithEnd("1"))
		m.Set(pod, statusWithEnd("2"))
		m.Set(pod, statusWithEnd("2"))
	}
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{ends: 2})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(over); err != nil { // ctx has ended, so Run only stops the queue
		t.Error(err)
	}
}

// TestStatusSyncDuration checks that the metric measures the time from the first change that is not
// in the API until the API has the newest status.
func TestStatusSyncDuration(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, gone := prometheus.NewRegistry(), make(chan struct{})
	m := status.NewManager(status.Config{
		Client: client, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Metrics: metrics.NewPods(r),
		Deleted: func(types.UID) { close(gone) },
	})
	m.Observe(pod)
	m.Set(pod, statusWithEnd("1"))
	m.Delete(pod) // the pod is deleted after the last status was written
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	<-gone
	cancel()
	<-done
	metricstest.Expect(t, metricstest.Scrape(t, r),
		map[string]float64{"kubelet_pod_status_sync_duration_seconds_count": 1, ends: 1})
}

// TestStaticPodIsResumed checks that the Manager adopts the status that an earlier kubelet wrote to
// the mirror pod before it writes to the mirror.
func TestStaticPodIsResumed(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	start := metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		mirror v1.PodStatus
		want   bool
		phase  v1.PodPhase
	}{
		"running":       {v1.PodStatus{Phase: v1.PodRunning, StartTime: &start}, true, v1.PodRunning},
		"ended before":  {v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", StartTime: &start}, true, ""},
		"never written": {v1.PodStatus{Phase: v1.PodPending}, false, ""},
	} {
		podName := strings.ReplaceAll(name, " ", "-")
		mirror, err := client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName},
			Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mirror.Status = c.mirror
		if mirror, err = client.CoreV1().Pods("default").UpdateStatus(t.Context(), mirror,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: podName, UID: "s", Annotations: map[string]string{source.AnnotationSource: source.File},
		}}
		resumed := false
		var m *status.Manager
		m = status.NewManager(status.Config{
			Client: client, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
			Mirror: func(*v1.Pod) *v1.Pod { return mirror },
			Resumed: func(uid types.UID, s v1.PodStatus) {
				resumed = true
				if got, ok := m.Get(uid); !ok || got.Phase != c.phase || !got.StartTime.Equal(&start) || got.Reason != "" {
					t.Errorf("%s: the status to go on from is %+v", name, got)
				}
				s.Message = "resumed"
				m.Set(static, s)
			},
		})
		m.Observe(static)
		m.Set(static, v1.PodStatus{Phase: v1.PodRunning, Message: "new"})
		w, err := client.CoreV1().Pods("default").Watch(t.Context(),
			metav1.ListOptions{ResourceVersion: mirror.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = m.Run(ctx) }()
		got := (<-w.ResultChan()).Object.(*v1.Pod).Status
		cancel()
		<-done
		w.Stop()
		if resumed != c.want || (got.Message == "resumed") != c.want {
			t.Errorf("%s: resumed: %t, the first status written is %+v", name, resumed, got)
		}
	}
}
