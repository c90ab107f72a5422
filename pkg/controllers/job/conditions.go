// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(job *batchv1.Job, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if job.Status.Conditions[i].Type == t {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

func isTrue(job *batchv1.Job, t batchv1.JobConditionType) bool {
	c := condition(job, t)
	return c != nil && c.Status == v1.ConditionTrue
}

func trueCondition(t batchv1.JobConditionType, reason, message string, now time.Time) *batchv1.JobCondition {
	at := metav1.NewTime(now)
	return &batchv1.JobCondition{Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message,
		LastProbeTime: at, LastTransitionTime: at}
}

// setCondition sets a condition and reports whether that changed anything. If want is false and the
// job has no condition of this type, it adds none.
func setCondition(job *batchv1.Job, want batchv1.JobCondition) bool {
	have := condition(job, want.Type)
	switch {
	case have == nil && want.Status == v1.ConditionFalse,
		have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message:
		return false
	case have == nil:
		job.Status.Conditions = append(job.Status.Conditions, want)
	default:
		*have = want
	}
	return true
}
