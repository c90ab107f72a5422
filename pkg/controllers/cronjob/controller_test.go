// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

const namespace = "default"

func TestSurplus(t *testing.T) {
	job := func(name string, start int64, end batchv1.JobConditionType) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if start > 0 {
			at := metav1.Unix(start, 0)
			j.Status.StartTime = &at
		}
		j.Status.Conditions = []batchv1.JobCondition{{Type: end, Status: v1.ConditionTrue}}
		return j
	}
	jobs := []*batchv1.Job{
		job("b", 5, batchv1.JobComplete), job("never", 0, batchv1.JobComplete),
		job("c", 7, batchv1.JobComplete), job("a", 5, batchv1.JobComplete),
		job("f", 1, batchv1.JobFailed), job("runs", 1, batchv1.JobSuspended),
	}
	for name, tc := range map[string]struct {
		good, bad *int32
		want      []string
	}{
		"no limits":      {nil, nil, nil},
		"enough room":    {ptr.To[int32](4), ptr.To[int32](1), nil},
		"oldest go":      {ptr.To[int32](2), ptr.To[int32](1), []string{"a", "b"}},
		"none are kept":  {ptr.To[int32](0), ptr.To[int32](0), []string{"a", "b", "c", "never", "f"}},
		"only of a kind": {nil, ptr.To[int32](0), []string{"f"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, j := range surplus(
				&batchv1.CronJob{Spec: batchv1.CronJobSpec{SuccessfulJobsHistoryLimit: tc.good,
					FailedJobsHistoryLimit: tc.bad}}, jobs) {
				got = append(got, j.Name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("surplus %v, want %v", got, tc.want)
			}
		})
	}
}

// TestServer checks on an API server that a job is created and listed as active, and that it is
// removed from that list when it has succeeded. The schedule is every second, but a job's name
// contains only the minute, so at most one job is created per minute.
func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "cronjob-controller", controller.Options{}, New)
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: batchv1.CronJobSpec{
			Schedule: "@every 1s", ConcurrencyPolicy: batchv1.ForbidConcurrent, TimeZone: ptr.To("Asia/Tokyo"),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": "c"}},
				Spec: batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
					RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c", Image: "i"}},
				}}},
			},
		},
	}
	if _, err := s.Client.BatchV1().CronJobs(namespace).Create(t.Context(), cron, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var job *batchv1.Job
	controllertest.Eventually(t, "a job starts and is active", func(ctx context.Context) (any, bool) {
		jobs, err := s.Client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: "of=c"})
		if err != nil || len(jobs.Items) == 0 {
			return err, false
		}
		job = &jobs.Items[0]
		got, err := s.Client.BatchV1().CronJobs(namespace).Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		cron = got
		return got.Status, active(got, job.UID)
	})
	at := cron.Status.LastScheduleTime.Time
	text := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if job.Name != jobName(cron, at) || !metav1.IsControlledBy(job, cron) || !clockAt(t, text).Equal(at) ||
		!strings.HasSuffix(text, "+09:00") {
		t.Errorf("job of %v: %+v", at, job.ObjectMeta)
	}
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime = &now, &now
	for _, c := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions,
			batchv1.JobCondition{Type: c, Status: v1.ConditionTrue, LastTransitionTime: now})
	}
	if _, err := s.Client.BatchV1().Jobs(namespace).UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "its success is noted", func(ctx context.Context) (any, bool) {
		got, err := s.Client.BatchV1().CronJobs(namespace).Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			return err, false
		}
		return got.Status, !active(got, job.UID) && got.Status.LastSuccessfulTime.Unix() == now.Unix()
	})
}

// TestNameTakenByAnotherJob checks that an active job that was deleted is removed from the status
// even if another job has the same name now, and that this other job is not deleted.
func TestNameTakenByAnotherJob(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	template := batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c", Image: "i"}},
	}}}
	other, err := s.Client.BatchV1().Jobs(namespace).Create(t.Context(),
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: template}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		cron, err := s.Client.BatchV1().CronJobs(namespace).Create(t.Context(), &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(string(policy))},
			Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", ConcurrencyPolicy: policy,
				JobTemplate: batchv1.JobTemplateSpec{Spec: template}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cron.Status.Active = []v1.ObjectReference{{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace,
			Name: other.Name, UID: "gone"}}
		if _, err := s.Client.BatchV1().CronJobs(namespace).UpdateStatus(t.Context(), cron,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.RunAs(t, s, "cronjob-controller", controller.Options{}, New)
	controllertest.Eventually(t, "no job is active", func(ctx context.Context) (any, bool) {
		list, err := s.Client.BatchV1().CronJobs(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err, false
		}
		return list.Items, !slices.ContainsFunc(list.Items, func(c batchv1.CronJob) bool { return len(c.Status.Active) > 0 })
	})
	if got, err := s.Client.BatchV1().Jobs(namespace).Get(t.Context(), other.Name,
		metav1.GetOptions{}); err != nil || got.DeletionTimestamp != nil {
		t.Errorf("the other job: %v, error %v", got, err)
	}
}

// TestNextNameTaken checks that a cron job starts its next job if the name of the present one is taken by
// a job of another owner.
func TestNextNameTaken(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	template := batchv1.JobSpec{Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "c", Image: "i"}},
	}}}
	cron, err := s.Client.BatchV1().CronJobs(namespace).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: template}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	jobs, first := s.Client.BatchV1().Jobs(namespace), cron.CreationTimestamp.Truncate(time.Minute).Add(time.Minute)
	if _, err := jobs.Create(t.Context(),
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobName(cron, first)}, Spec: template},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fake := clocktesting.NewFakeClock(first)
	controllertest.RunAs(t, s, "cronjob-controller", controller.Options{},
		func(d controller.Deps) (controller.Controller, error) {
			d.Clock = fake
			return New(d)
		})
	controllertest.Eventually(t, "a later job starts", func(ctx context.Context) (any, bool) {
		fake.Step(time.Second)
		list, err := jobs.List(ctx, metav1.ListOptions{})
		return list, err == nil && len(list.Items) > 1 && metav1.IsControlledBy(&list.Items[1], cron)
	})
}
