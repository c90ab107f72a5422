// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// reasonSchedulerError is the reason of the PodScheduled condition if the evaluation of the pod
// failed.
const reasonSchedulerError = "SchedulerError"

// reject queues the verdict about a pod without a node: its condition with the reason, its
// nominated node, and the pods to evict for it.
func (s *Scheduler) reject(p *profile.Profile, item *queue.Item, d decision) {
	v := &verdict{
		profile: p, pod: d.about, condition: conditionOf(v1.PodReasonUnschedulable, d.message),
		nominated: d.nominate, victims: d.victims, preemptor: d.preemptor, must: len(d.victims) > 0,
	}
	if v.must {
		v.done = func() { s.queue.Release(item) }
	}
	s.report(v)
	for _, other := range d.displaced {
		s.report(&verdict{profile: p, pod: other.Pod, must: true}) // removes the other pod's nomination
	}
}

// patchStatus writes a verdict's nominated node and condition into the pod's status, unless they
// are already there.
func (s *Scheduler) patchStatus(ctx context.Context, pod *v1.Pod, v *verdict) error {
	status := map[string]any{}
	if v.nominated != pod.Status.NominatedNodeName {
		status["nominatedNodeName"] = v.nominated
	}
	if c := v.condition; c != nil && !hasCondition(pod, c) {
		stamped := *c
		stamped.ObservedGeneration = pod.Generation
		stamped.LastTransitionTime = metav1.NewTime(s.cfg.Clock.Now())
		if old := condition(pod, c.Type); old != nil && old.Status == c.Status {
			stamped.LastTransitionTime = old.LastTransitionTime
		}
		status["conditions"] = []v1.PodCondition{stamped}
	}
	if len(status) == 0 {
		return nil
	}
	return s.patch(ctx, pod, status)
}

// patch applies a strategic merge patch to a pod's status.
func (s *Scheduler) patch(ctx context.Context, pod *v1.Pod, status map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = s.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body,
		metav1.PatchOptions{}, "status")
	return err
}

func condition(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// hasCondition reports whether the pod's status already has the condition c.
func hasCondition(pod *v1.Pod, c *v1.PodCondition) bool {
	old := condition(pod, c.Type)
	return old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message &&
		old.ObservedGeneration == pod.Generation
}

// evict makes room for the pod of a verdict, or for its PodGroup: it writes the reason into the victim's
// status and then deletes the victim.
func (s *Scheduler) evict(ctx context.Context, v *verdict, victim *scheduling.Pod) error {
	kind := "pod"
	if v.preemptor != nil {
		kind = "podgroup"
	}
	err := s.patch(ctx, victim.Pod, map[string]any{"conditions": []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority %s", v.profile.Name, kind),
		ObservedGeneration: victim.Generation,
		LastTransitionTime: metav1.NewTime(s.cfg.Clock.Now()),
	}}})
	if err != nil {
		return err
	}
	return s.cfg.Client.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(victim.UID))})
}
