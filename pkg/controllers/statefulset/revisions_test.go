// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// TestRevisionsConverge checks, with any strategy and order of events, that the status finally has
// the revisions of the existing pods, and that an update is complete when all pods have the update
// revision.
func TestRevisionsConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, below := rapid.IntRange(0, 4).Draw(t, "replicas"), 0
		var set *appsv1.StatefulSet
		byHand := false
		switch rapid.SampledFrom([]string{"bare", "partition", "several", "hand"}).Draw(t, "strategy") {
		case "bare":
			set = setOf(int32(n), bare)
		case "partition":
			below = rapid.IntRange(0, 5).Draw(t, "partition")
			set = setOf(int32(n), partitioned(int32(below)))
		case "several":
			below = rapid.IntRange(0, 2).Draw(t, "partition")
			set = setOf(int32(n), partitioned(int32(below)), maxUnavailable(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "most"))))
		case "hand":
			set, byHand = setOf(int32(n), onDelete), true
		}
		if rapid.Bool().Draw(t, "parallel") {
			parallel(set)
		}
		var words []string
		for i := range rapid.IntRange(0, 5).Draw(t, "had") {
			words = append(words, fmt.Sprintf("%d:ready:old", i))
		}
		s := stateOf(set, strings.Join(words, " "))
		all := rapid.Bool().Draw(t, "all are deleted by hand")
		for round := range 80 {
			happens := func() bool { return round > 40 || rapid.Bool().Draw(t, "happens") }
			st, _ := status(s, 0, 0)
			set.Status.CurrentReplicas = st.CurrentReplicas
			p, err := decide(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range slices.Concat(p.phases...) {
				if step.verb == create {
					s.pods = append(s.pods, podsOf(set, fmt.Sprintf("%d:pending:%s", ordinalOf(step.pod), revisionOf(step.pod)))...)
				} else {
					step.pod.DeletionTimestamp = &metav1.Time{Time: noon}
				}
			}
			for _, pod := range s.pods {
				if round < 40 && rapid.IntRange(0, 9).Draw(t, "deleted by hand") == 0 || byHand && all &&
					round == 40 && revisionOf(pod) == "old" {
					pod.DeletionTimestamp = &metav1.Time{Time: noon}
				}
			}
			s.pods = slices.DeleteFunc(s.pods, func(pod *v1.Pod) bool { return terminating(pod) && happens() })
			for i, pod := range s.pods {
				if pod.Status.Phase == v1.PodPending && happens() {
					s.pods[i] = podsOf(set, fmt.Sprintf("%d:ready:%s", ordinalOf(pod), revisionOf(pod)))[0]
				}
			}
		}
		old := 0
		for _, pod := range s.pods {
			if revisionOf(pod) == "old" {
				old++
				if !byHand && ordinalOf(pod) >= below {
					t.Fatalf("pod %d is still of the old revision", ordinalOf(pod))
				}
			}
		}
		want := appsv1.StatefulSetStatus{
			Replicas: int32(n), ReadyReplicas: int32(n), CurrentReplicas: int32(old),
			UpdatedReplicas: int32(n - old), CurrentRevision: "old",
		}
		if old == 0 {
			want.CurrentReplicas, want.CurrentRevision = int32(n), "new"
		}
		got, _ := status(s, 0, 0)
		if got.Replicas != want.Replicas || got.ReadyReplicas != want.ReadyReplicas ||
			got.CurrentReplicas != want.CurrentReplicas ||
			got.UpdatedReplicas != want.UpdatedReplicas || got.CurrentRevision != want.CurrentRevision ||
			got.UpdateRevision != "new" {
			t.Fatalf("it ends with %+v, want %+v", got, want)
		}
	})
}

// TestUpdateByHand checks that with the strategy OnDelete the current revision changes when all
// pods were replaced, and also if the StatefulSet has no pods.
func TestUpdateByHand(t *testing.T) {
	b := newBench(t)
	set := sample(2)
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	b.create(set)
	b.want("+web-0", "+web-1")
	before := b.status("web", "all ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 2 })
	b.patch("web", image("two"))
	for i, name := range []string{"web-1", "web-0"} {
		b.status("web", "waiting for hands", func(s *appsv1.StatefulSet) bool {
			return s.Status.CurrentRevision == before.Status.CurrentRevision &&
				s.Status.UpdateRevision != before.Status.UpdateRevision &&
				int(s.Status.UpdatedReplicas) == i && int(s.Status.CurrentReplicas) == 2-i && s.Status.ReadyReplicas == 2
		})
		if err := b.Client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.want("-"+name, "+"+name)
	}
	b.status("web", "update complete", func(s *appsv1.StatefulSet) bool {
		return s.Status.CurrentRevision == s.Status.UpdateRevision &&
			s.Status.CurrentRevision != before.Status.CurrentRevision &&
			s.Status.CurrentReplicas == 2 && s.Status.UpdatedReplicas == 2
	})
	b.patch("web", `{"spec":{"replicas":0}}`)
	b.want("-web-1", "-web-0")
	b.patch("web", image("three"))
	b.status("web", "an update of no pods", func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == s.Generation && s.Status.Replicas == 0 &&
			s.Status.CurrentRevision == s.Status.UpdateRevision
	})
}
