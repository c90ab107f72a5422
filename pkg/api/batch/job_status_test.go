// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestJobStatusUpdate(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return ptr.To(metav1.Unix(seconds, 0)) }
	condition := func(j *batchv1.Job, kind batchv1.JobConditionType, status corev1.ConditionStatus) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: status})
	}
	complete := func(j *batchv1.Job) {
		condition(j, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)
		condition(j, batchv1.JobComplete, corev1.ConditionTrue)
		j.Status.StartTime, j.Status.CompletionTime = at(10), at(20)
	}
	indexes := func(j *batchv1.Job) {
		j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		j.Spec.Completions, j.Spec.Parallelism, j.Spec.BackoffLimitPerIndex = ptr.To[int32](5),
			ptr.To[int32](5), ptr.To[int32](1)
	}
	for name, tc := range map[string]struct {
		old, change func(*batchv1.Job) // changes a copy of old
		want        string             // a part of the only error, or "" for no error
	}{
		"completes": {func(*batchv1.Job) {}, complete, ""},
		"completes but is busy": {func(*batchv1.Job) {},
			func(j *batchv1.Job) { complete(j); j.Status.Active = 1 }, "active>0 is invalid for finished job"},
		"completes with notes": {func(*batchv1.Job) {}, func(j *batchv1.Job) {
			complete(j)
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: []types.UID{"u"}}
		}, "must be empty for finished job"},
		"completes too early": {func(*batchv1.Job) {},
			func(j *batchv1.Job) { complete(j); j.Status.StartTime = at(30) }, "must be equal to or after `startTime`"},
		"fails unannounced": {func(j *batchv1.Job) { j.Status.StartTime = at(1) },
			func(j *batchv1.Job) { condition(j, batchv1.JobFailed, corev1.ConditionTrue) },
			"cannot set Failed=True condition without the FailureTarget=true condition"},
		"revives": {complete,
			func(j *batchv1.Job) {
				j.Status.Conditions, j.Status.CompletionTime = j.Status.Conditions[:1],
					nil
			}, "cannot disable the terminal Complete=True condition"},
		"counts down": {func(j *batchv1.Job) { j.Status.Succeeded = 3 },
			func(j *batchv1.Job) { j.Status.Succeeded = 2 }, "cannot decrease the succeeded counter"},
		"counts indexes down": {func(j *batchv1.Job) { indexes(j); j.Status.Succeeded = 3 },
			func(j *batchv1.Job) { j.Status.Succeeded = 2 }, ""},
		"old list beyond completions": {func(j *batchv1.Job) { indexes(j); j.Status.CompletedIndexes = "0-7" },
			func(j *batchv1.Job) { j.Status.Active = 1 }, ""},
		"new list beyond completions": {indexes, func(j *batchv1.Job) { j.Status.CompletedIndexes = "0-7" },
			"error parsing completedIndexes"},
		"lists overlap": {indexes,
			func(j *batchv1.Job) { j.Status.CompletedIndexes, j.Status.FailedIndexes = "0,2-4", ptr.To("1,3") },
			"failedIndexes and completedIndexes overlap at index: 3"},
		"restarts": {func(j *batchv1.Job) { j.Status.StartTime = at(1) },
			func(j *batchv1.Job) { j.Status.StartTime = at(2) }, "field is immutable for unsuspended job once set"},
		"is suspended": {func(j *batchv1.Job) { j.Status.StartTime, j.Spec.Suspend = at(1), ptr.To(true) },
			func(j *batchv1.Job) { j.Status.StartTime = nil }, ""},
		"resumes": {func(j *batchv1.Job) {
			j.Status.StartTime = at(1)
			condition(j, batchv1.JobSuspended, corev1.ConditionTrue)
		}, func(j *batchv1.Job) {
			j.Status.StartTime, j.Status.Conditions = at(2), nil
			condition(j, batchv1.JobSuspended, corev1.ConditionFalse)
		}, ""},
		"more ready than active": {func(*batchv1.Job) {},
			func(j *batchv1.Job) { j.Status.Ready = ptr.To[int32](1) }, "cannot set more ready pods than active"},
	} {
		t.Run(name, func(t *testing.T) {
			old := &batchv1.Job{}
			tc.old(old)
			job := old.DeepCopy()
			tc.change(job)
			errs := validateJobStatus(t.Context(), job, old)
			if tc.want == "" && len(errs) > 0 || tc.want != "" &&
				(len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want)) {
				t.Errorf("errors %v, want %q", errs, tc.want)
			}
		})
	}
}
