// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRank(t *testing.T) {
	pod := func(uid, node, cost string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid),
			Annotations: map[string]string{v1.PodDeletionCost: cost}}}
		p.Spec.NodeName = node
		return p
	}
	for name, tc := range map[string]struct {
		pods []*v1.Pod
		want []types.UID
	}{
		"by cost": {[]*v1.Pod{pod("a", "n", "3"), pod("b", "n", "-10"), pod("c", "n", "")}, []types.UID{"b", "c", "a"}},
		"no plain cost": {[]*v1.Pod{pod("a", "n", "1"), pod("b", "n", "+5"), pod("c", "n", "05")},
			[]types.UID{"b", "c", "a"}},
		"by neighbours": {[]*v1.Pod{pod("a", "few", ""), pod("b", "many", ""), pod("c", "", "9")},
			[]types.UID{"c", "b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []types.UID
			for _, p := range rank(tc.pods, map[string]int{"few": 1, "many": 2}, time.Unix(1000, 0)) {
				got = append(got, p.UID)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("order %v, want %v", got, tc.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	now := time.Unix(1000, 0)
	app := map[string]string{"app": "x"}
	pod := func(changes ...func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: app}, Status: v1.PodStatus{Phase: v1.PodRunning}}
		for _, f := range changes {
			f(p)
		}
		return p
	}
	ready := func(ago time.Duration) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
		}
	}
	goes := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	three := int32(3)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &three, MinReadySeconds: 10, Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}},
	}}
	active := []*v1.Pod{
		pod(ready(time.Minute)), pod(ready(4 * time.Second)), pod(ready(7 * time.Second)),
		pod(func(p *v1.Pod) { p.Labels = nil }),
	}
	mine := append(slices.Clone(active), pod(goes), pod(goes, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }))
	s, again := status(set, mine, active, nil, now)
	if s.Replicas != 4 || s.FullyLabeledReplicas != 3 || s.ReadyReplicas != 3 || s.AvailableReplicas != 1 ||
		*s.TerminatingReplicas != 1 ||
		s.ObservedGeneration != 7 || len(s.Conditions) != 0 || again != 3*time.Second {
		t.Errorf("status %+v, again in %v", s, again)
	}
	set.Status, _ = status(set, mine, active, errors.New("no"), now)
	if c := set.Status.Conditions; len(c) != 1 || c[0].Reason != "FailedDelete" || c[0].Message != "no" {
		t.Errorf("conditions with too many pods: %+v", c)
	}
	if s, _ := status(set, nil, nil, errors.New("again"), now.Add(time.Hour)); len(s.Conditions) != 1 ||
		s.Conditions[0].Message != "no" {
		t.Errorf("a failure that lasts: %+v", s.Conditions)
	}
	if s, _ := status(set, nil, nil, nil, now); len(s.Conditions) != 0 {
		t.Errorf("a failure that is over: %+v", s.Conditions)
	}
}
