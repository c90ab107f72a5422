// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func finishedJob(ttl *int32, conditions ...batchv1.JobConditionType) *batchv1.Job {
	job := &batchv1.Job{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: ttl}}
	for _, c := range conditions {
		job.Status.Conditions = append(job.Status.Conditions,
			batchv1.JobCondition{Type: c, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(100, 0)})
	}
	return job
}

func TestExpiry(t *testing.T) {
	going := finishedJob(ptr.To[int32](5), batchv1.JobComplete)
	going.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		job  *batchv1.Job
		want int64 // Unix time in seconds at which the job must be deleted; 0 if it is kept
	}{
		"completed": {finishedJob(ptr.To[int32](5), batchv1.JobSuccessCriteriaMet, batchv1.JobComplete), 105},
		"failed":    {finishedJob(ptr.To[int32](0), batchv1.JobFailed), 100},
		"runs":      {finishedJob(ptr.To[int32](5), batchv1.JobFailureTarget), 0},
		"stays":     {finishedJob(nil, batchv1.JobComplete), 0},
		"goes":      {going, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if at, ends := expiry(tc.job); ends != (tc.want != 0) || ends && at.Unix() != tc.want {
				t.Errorf("expiry %v, %v; want %v", at, ends, tc.want)
			}
		})
	}
}

// TestExpired checks that finished jobs are deleted when their time has passed, and not before.
func TestExpired(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	r := prometheus.NewRegistry()
	controllertest.RunAs(t, s, "ttl-after-finished-controller", controller.Options{},
		controllertest.WithMetrics(r, NewExpiry))
	jobs := s.Client.BatchV1().Jobs("default")
	now := metav1.Now()
	for name, ttl := range map[string]int32{"now": 0, "soon": 1, "late": 3600} {
		job := finishedJob(&ttl)
		job.Name = name
		job.Spec.Template.Spec = v1.PodSpec{RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{Name: "c", Image: "i"}}}
		job, err := jobs.Create(t.Context(), job, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		job.Status = finishedJob(nil, batchv1.JobFailureTarget, batchv1.JobFailed).Status
		job.Status.StartTime = &now
		for i := range job.Status.Conditions {
			job.Status.Conditions[i].LastTransitionTime = now
		}
		if _, err := jobs.UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// No garbage collector runs here, so a deleted job remains with a deletion timestamp.
	deleted := func(name string) (time.Time, bool) {
		job, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || job.DeletionTimestamp == nil {
			return time.Time{}, apierrors.IsNotFound(err)
		}
		return job.DeletionTimestamp.Time, true
	}
	for _, name := range []string{"now", "soon"} {
		controllertest.Eventually(t, name, func(context.Context) (any, bool) { return deleted(name) })
	}
	if at, gone := deleted("soon"); gone && at.Before(now.Add(time.Second).Truncate(time.Second)) {
		t.Errorf("deleted at %v, finished at %v", at, now)
	}
	controllertest.Eventually(t, "two deletions are counted", func(context.Context) (any, bool) {
		got := controllertest.Metrics(t, r)
		return got, got["ttl_after_finished_controller_job_deletion_duration_seconds"] == 2
	})
	if at, gone := deleted("late"); gone {
		t.Errorf("deleted an hour too early, at %v", at)
	}
}
