// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

const (
	// reasonGroupScheduled is the reason of the condition of a PodGroup that has been scheduled.
	reasonGroupScheduled = "Scheduled"
	// maxGroupReports is how many conditions are taken from the mailbox at once.
	maxGroupReports = 64
)

// groupReport is a condition that is to be written into the status of a PodGroup.
type groupReport struct {
	group     *schedulingv1beta1.PodGroup
	condition metav1.Condition
}

// reportGroup queues the condition PodGroupInitiallyScheduled of a pod's PodGroup. It does nothing if the
// pod is in none.
func (s *Scheduler) reportGroup(pod *v1.Pod, status metav1.ConditionStatus, reason, message string) {
	g := s.gangs.podGroup(pod)
	if g == nil {
		return
	}
	r := &groupReport{g, metav1.Condition{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: status,
		Reason: reason, Message: message, ObservedGeneration: g.Generation}}
	if conditionChanged(g, &r.condition, metav1.Time{}) != nil {
		s.groupReports.put(g.UID, r, status == metav1.ConditionTrue)
	}
}

// conditionChanged returns the condition c with its time of transition, or nil if the PodGroup need not
// be changed: it has this condition, or it was scheduled before, which stays true.
func conditionChanged(g *schedulingv1beta1.PodGroup, c *metav1.Condition, now metav1.Time) *metav1.Condition {
	old := meta.FindStatusCondition(g.Status.Conditions, c.Type)
	if old != nil && old.Status == metav1.ConditionTrue && c.Status != metav1.ConditionTrue {
		return nil
	}
	conditions := append([]metav1.Condition(nil), g.Status.Conditions...)
	next := *c
	next.LastTransitionTime = now
	if !meta.SetStatusCondition(&conditions, next) {
		return nil
	}
	return meta.FindStatusCondition(conditions, c.Type)
}

// runGroupReports writes the queued conditions of PodGroups until ctx ends.
func (s *Scheduler) runGroupReports(ctx context.Context) {
	for {
		some := s.groupReports.take(ctx, maxGroupReports)
		if len(some) == 0 {
			return
		}
		for _, r := range some {
			err := s.writeGroup(ctx, r)
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				s.cfg.Log.Warn("Failed to write PodGroup status", "podGroup", r.group.Namespace+"/"+r.group.Name, "err", err)
			}
		}
	}
}

// writeGroup writes a condition of a PodGroup. The PodGroup in the scheduler's cache may be older than the
// last condition that was written. Then the patch conflicts, and writeGroup reads the PodGroup.
func (s *Scheduler) writeGroup(ctx context.Context, r *groupReport) error {
	g, client := r.group, s.cfg.Client.SchedulingV1beta1().PodGroups(r.group.Namespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c := conditionChanged(g, &r.condition, metav1.NewTime(s.cfg.Clock.Now()))
		if c == nil || g.UID != r.group.UID {
			return nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": g.UID, "resourceVersion": g.ResourceVersion},
			"status":   map[string]any{"conditions": []metav1.Condition{*c}},
		})
		if err != nil {
			return fmt.Errorf("condition: %w", err)
		}
		err = retried(ctx, func() error {
			_, err := client.Patch(ctx, g.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
			return err
		})
		if apierrors.IsConflict(err) {
			if now, getErr := client.Get(ctx, g.Name, metav1.GetOptions{}); getErr == nil {
				g = now
			}
		}
		return err
	})
}
