// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestNominationEnds checks that a pod which fits no node because of a nominated pod is tried again when
// that nomination ends.
func TestNominationEnds(t *testing.T) {
	nominated := func(s *Scheduler) *v1.Pod {
		pod := sizedPod("nominated", 10, "3", "")
		pod.Status.NominatedNodeName = "n"
		// With a scheduling gate, the pod is not tried. So it gets no node and keeps its nomination.
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
		s.podSet(nil, pod)
		return pod
	}
	for name, end := range map[string]func(s *Scheduler, pod *v1.Pod){
		"deleted": func(s *Scheduler, pod *v1.Pod) { s.podGone(pod) },
		"cleared": func(s *Scheduler, pod *v1.Pod) {
			cleared := pod.DeepCopy()
			cleared.Status.NominatedNodeName = ""
			s.podSet(pod, cleared)
		},
		"moved": func(s *Scheduler, pod *v1.Pod) {
			moved := pod.DeepCopy()
			moved.Status.NominatedNodeName = "elsewhere"
			s.podSet(pod, moved)
		},
		"bound elsewhere": func(s *Scheduler, pod *v1.Pod) {
			bound := pod.DeepCopy()
			bound.Spec.NodeName = "elsewhere"
			s.podSet(pod, bound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScheduler(t)
			pod := nominated(s)
			s.podSet(nil, sizedPod("waits", 10, "2", ""))
			if d := try(t, s, "waits"); d.node != "" {
				t.Fatal("placed on ", d.node)
			}
			if item := pop(t, s); item != nil {
				t.Fatalf("pod %s is tried again too early", item.Pod.Name)
			}
			end(s, pod)
			if d := try(t, s, "waits"); d.node != "n" {
				t.Errorf("placed on %q: %s", d.node, d.message)
			}
		})
	}
}

// TestAttemptEndsNomination checks that a pod which fits no node because of a nominated pod is tried
// again after an attempt that ends the nomination, and that the pod that lost the nomination is not.
func TestAttemptEndsNomination(t *testing.T) {
	s := testScheduler(t)
	large := sizedPod("large", 10, "8", "")
	large.Status.NominatedNodeName = "n"
	s.podSet(nil, large)
	item := pop(t, s)
	s.podSet(nil, sizedPod("waits", 10, "2", ""))
	if d := try(t, s, "waits"); d.node != "" {
		t.Fatal("placed on ", d.node)
	}
	if d := decideItem(t, s, item); d.node != "" || d.nominate != "" {
		t.Fatalf("placed on %q, nominated to %q", d.node, d.nominate)
	}
	if d := try(t, s, "waits"); d.node != "n" {
		t.Errorf("placed on %q: %s", d.node, d.message)
	}
	if item := pop(t, s); item != nil {
		t.Errorf("pod %s is tried again", item.Pod.Name)
	}
}

// TestLateUpdateKeepsNomination checks that an update which is older than a nomination does not end
// it, and that a pod that loses its nomination to another pod is tried again.
func TestLateUpdateKeepsNomination(t *testing.T) {
	s := testScheduler(t)
	low := sizedPod("low", 0, "4", "n")
	s.podSet(nil, low)
	pod := sizedPod("pod", 10, "3", "")
	s.podSet(nil, pod)
	item := pop(t, s)
	if d := decideItem(t, s, item); d.nominate != "n" {
		t.Fatalf("nominated to %q", d.nominate)
	}
	late := pod.DeepCopy()
	late.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}
	late.Generation, pod.Generation = 1, 1
	s.podSet(pod, late)
	if got := s.nominated.node["pod"]; got != "n" {
		t.Errorf("nominated to %q after a late update", got)
	}
	s.podSet(nil, sizedPod("high", 100, "4", ""))
	if d := try(t, s, "high"); d.nominate != "n" || len(d.displaced) != 1 {
		t.Fatalf("nominated to %q, displaced %d pods", d.nominate, len(d.displaced))
	}
	s.queue.Release(item)
	if d := try(t, s, "pod"); d.node != "" || d.nominate != "" {
		t.Errorf("placed on %q, nominated to %q", d.node, d.nominate)
	}
}
