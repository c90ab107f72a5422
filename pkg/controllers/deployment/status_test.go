// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clocktesting "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/controllers/controller"
)

func TestProgress(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	type counts struct{ replicas, updated, ready, available int32 }
	full := counts{3, 3, 3, 3}
	for _, tc := range []struct {
		name       string
		before     string // reason of the Progressing condition before the sync
		age        time.Duration
		old, new   counts
		reason     string
		status     v1.ConditionStatus
		newlyDated bool
	}{
		{name: "nothing new", before: reasonUpdated, old: counts{3, 1, 3, 3}, new: counts{3, 1, 3, 3},
			reason: reasonUpdated, status: v1.ConditionTrue},
		{name: "one more updated", before: reasonUpdated, old: counts{3, 1, 3, 3}, new: counts{3, 2, 3, 3},
			reason: reasonUpdated, status: v1.ConditionTrue, newlyDated: true},
		{name: "complete", before: reasonUpdated, old: counts{3, 3, 2, 2}, new: full, reason: reasonComplete,
			status: v1.ConditionTrue, newlyDated: true},
		{name: "timed out", before: reasonUpdated, age: 11 * time.Minute, old: counts{3, 1, 2, 2},
			new: counts{3, 1, 2, 2}, reason: reasonTimedOut, status: v1.ConditionFalse, newlyDated: true},
		{name: "late, but it moves", before: reasonTimedOut, age: 11 * time.Minute, old: counts{3, 1, 2, 2},
			new: counts{3, 1, 3, 3}, reason: reasonUpdated, status: v1.ConditionTrue, newlyDated: true},
		{name: "complete pods are lost", before: reasonComplete, age: time.Hour, old: full,
			new: counts{3, 3, 1, 1}, reason: reasonComplete, status: v1.ConditionTrue},
		{name: "lost pods come back one by one", before: reasonComplete, age: time.Hour,
			old: counts{3, 3, 1, 1}, new: counts{3, 3, 2, 2}, reason: reasonComplete, status: v1.ConditionTrue},
		{name: "complete, and rolled back", before: reasonComplete, age: time.Hour, old: full,
			new: counts{4, 1, 3, 3}, reason: reasonComplete, status: v1.ConditionTrue},
		{name: "rolled back and moving", before: reasonComplete, age: time.Hour, old: counts{4, 1, 3, 3},
			new: counts{4, 2, 3, 3}, reason: reasonUpdated, status: v1.ConditionTrue, newlyDated: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dated := metav1.NewTime(now.Add(-tc.age - time.Second))
			beforeStatus := v1.ConditionTrue
			if tc.before == reasonTimedOut {
				beforeStatus = v1.ConditionFalse
			}
			status := func(c counts) appsv1.DeploymentStatus {
				return appsv1.DeploymentStatus{
					Replicas: c.replicas, UpdatedReplicas: c.updated, ReadyReplicas: c.ready, AvailableReplicas: c.available,
					Conditions: []appsv1.DeploymentCondition{
						{Type: appsv1.DeploymentProgressing, Status: beforeStatus, Reason: tc.before,
							Message: `Deployment "web" is as it is.`, LastUpdateTime: dated}},
				}
			}
			c := &Controller{Deps: controller.Deps{Clock: clocktesting.NewFakeClock(now)}}
			c.queue = controller.NewQueue(Name, c.Clock, slog.New(slog.DiscardHandler), 1,
				func(context.Context, string) error { return nil })
			w := &work{Controller: c, d: &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), ProgressDeadlineSeconds: ptr.To[int32](600)},
				Status:     status(tc.old),
			}}
			s := status(tc.new)
			w.setProgressing(&s)
			got := conditionOf(&s, appsv1.DeploymentProgressing)
			if got.Reason != tc.reason || got.Status != tc.status {
				t.Errorf("%s %s, want %s %s", got.Reason, got.Status, tc.reason, tc.status)
			}
			if newly := !got.LastUpdateTime.Equal(&dated); newly != tc.newlyDated {
				t.Errorf("time was updated: %v, want %v", newly, tc.newlyDated)
			}
		})
	}
}
