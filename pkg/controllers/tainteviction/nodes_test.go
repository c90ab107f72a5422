// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func tolerate(key string, seconds int64) v1.Toleration {
	t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	if seconds >= 0 {
		t.TolerationSeconds = &seconds
	}
	return t
}

func TestEvictAt(t *testing.T) {
	execute := func(key string) v1.Taint { return v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute} }
	for _, tc := range []struct {
		name        string
		taints      []v1.Taint
		tolerations []v1.Toleration
		placed      time.Duration // when the pod was bound, as the time after the taint was added
		want        time.Duration // when the pod must be deleted, as the time after the taint was added; -1 if it may stay
	}{
		{name: "no taint", want: -1},
		{name: "another effect", taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule}}, want: -1},
		{name: "not tolerated", taints: []v1.Taint{execute("a")}},
		{name: "tolerated for ever", taints: []v1.Taint{execute("a")},
			tolerations: []v1.Toleration{tolerate("a", -1)}, want: -1},
		{name: "tolerated for a while", taints: []v1.Taint{execute("a")},
			tolerations: []v1.Toleration{tolerate("a", 60)}, want: time.Minute},
		{name: "the shortest counts", taints: []v1.Taint{execute("a")},
			tolerations: []v1.Toleration{tolerate("a", -1), tolerate("a", 60), tolerate("", 30)}, want: 30 * time.Second},
		{name: "the least patience counts", taints: []v1.Taint{execute("a"), execute("b")},
			tolerations: []v1.Toleration{tolerate("a", 60), tolerate("b", 10)}, want: 10 * time.Second},
		{name: "one is not tolerated", taints: []v1.Taint{execute("a"), execute("b")},
			tolerations: []v1.Toleration{tolerate("a", 60)}},
		{name: "negative is none", taints: []v1.Taint{execute("a")},
			tolerations: []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists, TolerationSeconds: ptr.To[int64](-5)}}},
		{name: "came later", taints: []v1.Taint{execute("a")}, tolerations: []v1.Toleration{tolerate("a", 60)},
			placed: time.Hour, want: time.Hour + time.Minute},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Tolerations: tc.tolerations}, Status: v1.PodStatus{Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(begin.Add(tc.placed))},
		}}}
		at, leaves := evictAt(pod, tc.taints, func(*v1.Taint) time.Time { return begin })
		if leaves != (tc.want >= 0) || leaves && at.Sub(begin) != tc.want {
			t.Errorf("%s: leaves %v after %v, want %v", tc.name, leaves, at.Sub(begin), tc.want)
		}
	}
}

func TestSightings(t *testing.T) {
	s := newSightings()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}}}}
	taint := &n.Spec.Taints[0]
	s.record(n, begin)
	s.record(n, begin.Add(time.Minute))
	if got := s.since("n", taint, begin.Add(time.Hour)); !got.Equal(begin) {
		t.Errorf("seen first at %v", got)
	}
	dated := v1.Taint{Key: "a", Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: begin.Add(-time.Hour)}}
	if got := s.since("n", &dated, begin); !got.Equal(begin.Add(-time.Hour)) {
		t.Errorf("dated: %v", got)
	}
	n.Spec.Taints = nil
	s.record(n, begin.Add(2*time.Minute))
	if got := s.since("n", taint, begin.Add(time.Hour)); !got.Equal(begin.Add(time.Hour)) || len(s.byNode) > 0 {
		t.Errorf("remembered a removed taint: %v, %v", got, s.byNode)
	}
}

// TestPatienceEnds checks that a pod with a toleration of limited time is deleted when this time
// has passed, also if the taint contains no time, and that more syncs of the pod do not delay this.
func TestPatienceEnds(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	ctx := t.Context()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}}}}
	if _, err := s.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, tolerations := range map[string][]v1.Toleration{"none": nil, "some": {tolerate("a", 1)},
		"endless": {tolerate("a", -1)}} {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1.PodSpec{NodeName: "n", Tolerations: tolerations, Containers: []v1.Container{{Name: "c", Image: "c"}}},
		}
		if _, err := s.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := prometheus.NewRegistry()
	controllertest.Run(t, s, controller.Options{}, controllertest.WithMetrics(r, NewNodes))
	controllertest.Eventually(t, "pods without patience end", func(ctx context.Context) (any, bool) {
		ended := 0
		for _, name := range []string{"none", "some"} {
			pod, err := s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil &&
				controller.Condition(pod, v1.DisruptionTarget) != nil {
				ended++
			}
		}
		return ended, ended == 2
	})
	controllertest.Eventually(t, "the deletions are counted", func(context.Context) (any, bool) {
		got := controllertest.Metrics(t, r)
		n := got["taint_eviction_controller_pod_deletions_total"]
		return got, n >= 2 && n == got["taint_eviction_controller_pod_deletion_duration_seconds"]
	})
	if pod, err := s.Client.CoreV1().Pods("default").Get(ctx, "endless", metav1.GetOptions{}); err != nil ||
		pod.DeletionTimestamp != nil {
		t.Errorf("endless: %v, %v", pod, err)
	}
}

// TestValueChanges checks that a pod is deleted when the value of a taint changes to one that the pod does
// not tolerate.
func TestValueChanges(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	ctx, pods, nodes := t.Context(), s.Client.CoreV1().Pods("default"), s.Client.CoreV1().Nodes()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NodeSpec{
		Taints: []v1.Taint{{Key: "a", Value: "one", Effect: v1.TaintEffectNoExecute}}}}
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Run(t, s, controller.Options{}, NewNodes)
	gone := func(name string) {
		t.Helper()
		controllertest.Eventually(t, name, func(ctx context.Context) (any, bool) {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			return pod, apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil
		})
	}
	for _, name := range []string{"one", "none"} {
		if _, err := pods.Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
			NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "c"}},
			Tolerations: []v1.Toleration{{Key: "a", Value: name, Effect: v1.TaintEffectNoExecute}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone("none") // the controller has synced the other pod before
	if _, err := nodes.Patch(ctx, "n", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/taints/0/value","value":"two"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	gone("one")
}

// TestReplacedPod checks that a pod is deleted from a node with a taint although the informer has reported
// it only as a change of an earlier pod of the same name. An informer does so after a broken watch.
func TestReplacedPod(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	c, informers := controllertest.RunUnwatched[*nodes](t, s, clock.Real(), NewNodes)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}}}}
	pod, err := s.Client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "c"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes := informers.Core().V1().Nodes().Informer().GetStore()
	if err := errors.Join(nodes.Add(node), c.pods.GetStore().Add(pod)); err != nil {
		t.Fatal(err)
	}
	earlier := pod.DeepCopy()
	earlier.UID = "earlier"
	c.podChanged(earlier, pod)
	controllertest.Eventually(t, "the pod is deleted", func(ctx context.Context) (any, bool) {
		got, err := s.Client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		return got, apierrors.IsNotFound(err) || err == nil && got.DeletionTimestamp != nil
	})
}
