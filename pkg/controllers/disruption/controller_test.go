// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func ready(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.PodStatus{
		Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
	}}
}

func notReady(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func leaving(name string) *v1.Pod {
	p := ready(name)
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}

func TestStatus(t *testing.T) {
	now := time.Unix(1000, 0)
	number, percent := intstr.FromInt32, intstr.FromString
	minAvailable := func(n intstr.IntOrString) policyv1.PodDisruptionBudgetSpec {
		return policyv1.PodDisruptionBudgetSpec{MinAvailable: &n}
	}
	maxUnavailable := func(n intstr.IntOrString) policyv1.PodDisruptionBudgetSpec {
		return policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &n}
	}
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	type sums struct{ healthy, desired, allowed int32 }
	for name, tc := range map[string]struct {
		spec      policyv1.PodDisruptionBudgetSpec
		disrupted map[string]metav1.Time
		pods      []*v1.Pod
		expected  int32
		want      sums
		left      []string
		again     time.Duration
	}{
		"minimum number": {spec: minAvailable(number(2)),
			pods: []*v1.Pod{ready("a"), ready("b"), ready("c")}, expected: 3, want: sums{3, 2, 1}},
		"fewer than the minimum": {spec: minAvailable(number(3)),
			pods: []*v1.Pod{ready("a"), notReady("b")}, expected: 2, want: sums{1, 3, 0}},
		"no pods": {spec: minAvailable(number(0)), want: sums{0, 0, 0}},
		"minimum percent, rounded up": {spec: minAvailable(percent("50%")),
			pods: []*v1.Pod{ready("a"), ready("b"), ready("c")}, expected: 3, want: sums{3, 2, 1}},
		"maximum number": {spec: maxUnavailable(number(1)),
			pods: []*v1.Pod{ready("a"), ready("b")}, expected: 2, want: sums{2, 1, 1}},
		"maximum percent, rounded up": {spec: maxUnavailable(percent("30%")),
			pods: []*v1.Pod{ready("a"), ready("b"), ready("c")}, expected: 3, want: sums{3, 2, 1}},
		"maximum above all pods": {spec: maxUnavailable(number(9)), pods: []*v1.Pod{ready("a")},
			expected: 1, want: sums{1, 0, 1}},
		"one is terminating": {spec: minAvailable(number(1)),
			pods: []*v1.Pod{ready("a"), leaving("b")}, expected: 2, want: sums{1, 1, 0}},
		"one eviction is pending": {spec: minAvailable(number(1)),
			disrupted: map[string]metav1.Time{"b": at(time.Minute)}, pods: []*v1.Pod{ready("a"), ready("b")},
			expected: 2, want: sums{1, 1, 0}, left: []string{"b"}, again: time.Minute},
		"one eviction timed out": {spec: minAvailable(number(1)),
			disrupted: map[string]metav1.Time{"b": at(time.Hour)}, pods: []*v1.Pod{ready("a"), ready("b")},
			expected: 2, want: sums{2, 1, 1}},
		"one eviction is complete": {spec: minAvailable(number(1)),
			disrupted: map[string]metav1.Time{"b": at(time.Minute)}, pods: []*v1.Pod{ready("a")}, expected: 1,
			want: sums{1, 1, 0}},
		"empty spec": {pods: []*v1.Pod{ready("a")}, expected: 1, want: sums{1, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Generation: 4}, Spec: tc.spec,
				Status: policyv1.PodDisruptionBudgetStatus{DisruptedPods: tc.disrupted},
			}
			got, again, err := status(b, tc.pods, tc.expected, now)
			if err != nil {
				t.Fatal(err)
			}
			if s := (sums{got.CurrentHealthy, got.DesiredHealthy, got.DisruptionsAllowed}); s != tc.want ||
				again != tc.again || got.ObservedGeneration != 4 {
				t.Errorf("got %+v, again in %v; want %+v, %v", got, again, tc.want, tc.again)
			}
			var left []string
			for name := range got.DisruptedPods {
				left = append(left, name)
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Error(diff)
			}
			if yes := meta.IsStatusConditionTrue(got.Conditions,
				policyv1.DisruptionAllowedCondition); yes != (tc.want.allowed > 0) {
				t.Errorf("condition: %+v", got.Conditions)
			}
		})
	}
}

func TestStaleIn(t *testing.T) {
	now := time.Unix(1000, 0)
	announced := func(change func(*v1.Pod, *v1.PodCondition)) *v1.Pod {
		c := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
			Reason: "EvictionByEvictionAPI", LastTransitionTime: metav1.NewTime(now.Add(-30 * time.Second))}
		p := ready("p")
		change(p, &c)
		p.Status.Conditions = append(p.Status.Conditions, c)
		return p
	}
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		in   time.Duration
		want bool
	}{
		"not announced": {ready("p"), 0, false},
		"announced":     {announced(func(*v1.Pod, *v1.PodCondition) {}), 90 * time.Second, true},
		"long ago": {announced(func(_ *v1.Pod, c *v1.PodCondition) {
			c.LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
		}), 0, true},
		"taken back": {announced(func(_ *v1.Pod, c *v1.PodCondition) { c.Status = v1.ConditionFalse }), 0, false},
		"by the kubelet": {announced(func(_ *v1.Pod, c *v1.PodCondition) {
			c.Reason = v1.PodReasonTerminationByKubelet
		}), 0, false},
		"ended": {announced(func(p *v1.Pod, _ *v1.PodCondition) { p.Status.Phase = v1.PodFailed }), 0, false},
		"leaving": {announced(func(p *v1.Pod, _ *v1.PodCondition) {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if in, yes := staleIn(tc.pod, now); in != tc.in || yes != tc.want {
				t.Errorf("got %v, %v", in, yes)
			}
		})
	}
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	controllertest.RunAs(t, s, "disruption-controller", controller.Options{}, New)
	core := s.Client.CoreV1()
	labels := map[string]string{"app": "a"}
	replicas := int32(4)
	set, err := s.Client.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	half := intstr.FromString("50%")
	two := intstr.FromInt32(2)
	for name, spec := range map[string]policyv1.PodDisruptionBudgetSpec{
		"half": {MaxUnavailable: &half}, "two": {MinAvailable: &two},
	} {
		spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		if _, err := s.Client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), b,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(name string, healthy, desired, expected, allowed int32) {
		t.Helper()
		controllertest.Eventually(t, "budget "+name, func(ctx context.Context) (any, bool) {
			b, err := s.Client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			got := []int32{b.Status.CurrentHealthy, b.Status.DesiredHealthy, b.Status.ExpectedPods, b.Status.DisruptionsAllowed}
			return b.Status, b.Status.ObservedGeneration == b.Generation &&
				cmp.Equal(got, []int32{healthy, desired, expected, allowed})
		})
	}
	says("half", 0, 0, 0, 0)
	for i := range 3 {
		pod, err := core.Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("p", i), Labels: labels,
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status = ready("").Status
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1000, 0)),
		})
		if _, err := core.Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says("half", 3, 2, 4, 1)
	says("two", 3, 2, 3, 1)
	controllertest.Eventually(t, "an announcement that nothing came of is taken back",
		func(ctx context.Context) (any, bool) {
			p, err := core.Pods("default").Get(ctx, "p0", metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			return p.Status, controller.Condition(p, v1.DisruptionTarget).Status == v1.ConditionFalse
		})
	zero := int64(0)
	if err := core.Pods("default").Delete(t.Context(), "p0", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	says("half", 2, 2, 4, 0)
	says("two", 2, 2, 2, 0)
}
