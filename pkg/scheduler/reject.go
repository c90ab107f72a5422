// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// reasonSchedulerError is the condition's reason when no answer was found.
const reasonSchedulerError = "SchedulerError"

// reject tells why a pod has no node, and evicts whom it may evict.
func (s *Scheduler) reject(ctx context.Context, p *profile.Profile, item *queue.Item, d decision) {
	pod := item.Pod
	put := s.reports.add
	if len(d.victims) > 0 {
		put = s.reports.addAll
	}
	put(pod.UID, func() {
		// The nomination comes first: were the scheduler killed between, the
		// room made would not be given to others.
		s.report(ctx, p, pod, verdictOf(v1.PodReasonUnschedulable, d.message, d.nominate))
		for _, victim := range d.victims {
			s.evict(ctx, p, pod, victim, d.nominate)
		}
		for _, other := range d.displaced {
			s.patchStatus(ctx, other.Pod, podVerdict{nominated: ""})
		}
		if len(d.victims) > 0 {
			s.queue.Release(item)
		}
	})
}

// podVerdict is what the pod's status shall say.
type podVerdict struct {
	condition *v1.PodCondition
	nominated string
}

func verdictOf(reason, message, nominated string) podVerdict {
	return podVerdict{
		condition: &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message},
		nominated: nominated,
	}
}

// report writes the pod's condition and an event.
func (s *Scheduler) report(ctx context.Context, p *profile.Profile, pod *v1.Pod, v podVerdict) {
	s.events[p.Name].failed(pod, v.condition.Message)
	s.patchStatus(ctx, pod, v)
}

func (s *Scheduler) patchStatus(ctx context.Context, pod *v1.Pod, v podVerdict) {
	if current := s.queue.Get(pod.UID); current != nil {
		pod = current
	}
	status := map[string]any{}
	if v.nominated != pod.Status.NominatedNodeName {
		status["nominatedNodeName"] = v.nominated
	}
	if c := v.condition; c != nil && !said(pod, c) {
		stamped := *c
		stamped.ObservedGeneration = pod.Generation
		stamped.LastTransitionTime = metav1.NewTime(s.cfg.Clock.Now())
		if old := condition(pod, c.Type); old != nil && old.Status == c.Status {
			stamped.LastTransitionTime = old.LastTransitionTime
		}
		status["conditions"] = []v1.PodCondition{stamped}
	}
	if len(status) == 0 {
		return
	}
	s.patch(ctx, pod, status)
}

// patch merges into a pod's status; a pod that is gone needs none.
func (s *Scheduler) patch(ctx context.Context, pod *v1.Pod, status map[string]any) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err == nil {
		_, err = s.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.cfg.Log.Warn("pod status not written", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}

func condition(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// said tells whether the pod's status says c already.
func said(pod *v1.Pod, c *v1.PodCondition) bool {
	old := condition(pod, c.Type)
	return old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message && old.ObservedGeneration == pod.Generation
}

// evict deletes a pod to make room for another, after noting in its status why.
func (s *Scheduler) evict(ctx context.Context, p *profile.Profile, pod *v1.Pod, victim *scheduling.Pod, node string) {
	if victim.DeletionTimestamp != nil {
		return
	}
	s.patch(ctx, victim.Pod, map[string]any{"conditions": []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod", pod.Spec.SchedulerName),
		ObservedGeneration: victim.Generation,
		LastTransitionTime: metav1.NewTime(s.cfg.Clock.Now()),
	}}})
	err := s.cfg.Client.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(victim.UID))})
	if err != nil {
		s.mu.Lock()
		delete(s.view.evicting, victim.UID)
		s.mu.Unlock()
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.cfg.Log.Warn("pod not evicted", "pod", victim.Namespace+"/"+victim.Name, "error", err)
		}
		return
	}
	s.metrics.victims.Inc()
	s.events[p.Name].preempted(victim.Pod, pod, node)
}
