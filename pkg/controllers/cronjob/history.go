// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cronjob

import (
	"cmp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// finishedType returns the type of the condition that shows that a job has finished (Complete or
// Failed), or "" if it has not.
func finishedType(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// surplus returns the finished jobs that exceed the cron job's history limits, with the oldest
// first.
func surplus(c *batchv1.CronJob, jobs []*batchv1.Job) []*batchv1.Job {
	var out []*batchv1.Job
	for _, kept := range []struct {
		ending batchv1.JobConditionType
		limit  *int32
	}{{batchv1.JobComplete, c.Spec.SuccessfulJobsHistoryLimit}, {batchv1.JobFailed, c.Spec.FailedJobsHistoryLimit}} {
		if kept.limit == nil {
			continue
		}
		var ended []*batchv1.Job
		for _, job := range jobs {
			if finishedType(job) == kept.ending {
				ended = append(ended, job)
			}
		}
		slices.SortFunc(ended, oldestFirst)
		out = append(out, ended[:max(0, len(ended)-int(*kept.limit))]...)
	}
	return out
}

// oldestFirst compares two jobs by start time. Jobs that have no start time come last.
func oldestFirst(a, b *batchv1.Job) int {
	s, t := a.Status.StartTime, b.Status.StartTime
	switch {
	case s == nil && t != nil:
		return 1
	case s != nil && t == nil:
		return -1
	case s != nil && !s.Equal(t):
		return s.Compare(t.Time)
	}
	return cmp.Compare(a.Name, b.Name)
}

func active(c *batchv1.CronJob, uid types.UID) bool {
	return slices.ContainsFunc(c.Status.Active, func(r v1.ObjectReference) bool { return r.UID == uid })
}

// removeActive removes the job with the given UID from the list of active jobs in the status.
func removeActive(c *batchv1.CronJob, uid types.UID) {
	c.Status.Active = slices.DeleteFunc(slices.Clone(c.Status.Active),
		func(r v1.ObjectReference) bool { return r.UID == uid })
}

// recordSuccess sets lastSuccessfulTime in the status to the job's completion time, if the job
// succeeded later than that.
func recordSuccess(c *batchv1.CronJob, job *batchv1.Job) {
	at, last := job.Status.CompletionTime, c.Status.LastSuccessfulTime
	if finishedType(job) == batchv1.JobComplete && at != nil && (last == nil || at.After(last.Time)) {
		c.Status.LastSuccessfulTime = at
	}
}
