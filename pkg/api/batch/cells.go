// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func jobCells(j *batchv1.Job, env resource.CellEnv) []any {
	names, images := column.Containers(j.Spec.Template.Spec.Containers)
	took := ""
	if start, end := j.Status.StartTime, j.Status.CompletionTime; start != nil && end != nil {
		took = duration.HumanDuration(end.Sub(start.Time))
	} else if start != nil {
		took = env.Age(*start)
	}
	return []any{
		j.Name, jobStatus(j), completions(j), took, env.Age(j.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(j.Spec.Selector),
	}
}

func completions(j *batchv1.Job) string {
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case j.Spec.Parallelism != nil && *j.Spec.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	default:
		return fmt.Sprintf("%d/1", j.Status.Succeeded)
	}
}

func jobStatus(j *batchv1.Job) string {
	switch {
	case is(j, batchv1.JobComplete):
		return "Complete"
	case is(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(j, batchv1.JobSuspended):
		return "Suspended"
	case is(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	default:
		return "Running"
	}
}

// is looks at the first condition of a type.
func is(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func cronJobCells(c *batchv1.CronJob, env resource.CellEnv) []any {
	names, images := column.Containers(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
	last := column.None
	if c.Status.LastScheduleTime != nil {
		last = env.Age(*c.Status.LastScheduleTime)
	}
	suspended := column.Unset
	if c.Spec.Suspend != nil {
		suspended = "False"
		if *c.Spec.Suspend {
			suspended = "True"
		}
	}
	return []any{
		c.Name, c.Spec.Schedule, column.Deref(c.Spec.TimeZone, column.None), suspended, int64(len(c.Status.Active)), last,
		env.Age(c.CreationTimestamp), names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}
