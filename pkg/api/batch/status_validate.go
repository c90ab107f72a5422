// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/report"
)

func validateJobStatus(_ context.Context, j, old *batchv1.Job) field.ErrorList {
	var r report.Report
	s, path := &j.Status, field.NewPath("status")
	r.NotNegative(path.Child("active"), int64(s.Active))
	r.NotNegative(path.Child("succeeded"), int64(s.Succeeded))
	r.NotNegative(path.Child("failed"), int64(s.Failed))
	if s.Ready != nil {
		r.NotNegative(path.Child("ready"), int64(*s.Ready))
	}
	if s.Terminating != nil {
		r.NotNegative(path.Child("terminating"), int64(*s.Terminating))
	}
	checkUncounted(&r, s.UncountedTerminatedPods, path.Child("uncountedTerminatedPods"))
	checkEnd(&r, j, path)
	checkIndexLists(&r, j, path)
	if s.Ready != nil && *s.Ready > s.Active {
		r.Invalid(path.Child("ready"), *s.Ready, "cannot set more ready pods than active")
	}
	checkHistory(&r, j, old, path)
	return r.Errors
}

func checkUncounted(r *report.Report, u *batchv1.UncountedTerminatedPods, path *field.Path) {
	if u == nil {
		return
	}
	seen := sets.New[types.UID]()
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", u.Succeeded}, {"failed", u.Failed}} {
		for i, uid := range list.uids {
			at := path.Child(list.name).Index(i)
			if uid == "" {
				r.Invalid(at, uid, "must not be empty")
			} else if seen.Has(uid) {
				r.Duplicate(at, uid)
			}
			seen.Insert(uid)
		}
	}
}

// checkEnd judges conditions that end a job, and what must and cannot be then.
func checkEnd(r *report.Report, j *batchv1.Job, path *field.Path) {
	s := &j.Status
	complete, failed := is(j, batchv1.JobComplete), is(j, batchv1.JobFailed)
	target, met := is(j, batchv1.JobFailureTarget), is(j, batchv1.JobSuccessCriteriaMet)
	refuse := func(when bool, detail string) {
		if when {
			r.Invalid(path.Child("conditions"), field.OmitValueType{}, detail)
		}
	}
	refuse(complete && failed, "cannot set Complete=True and Failed=true conditions")
	refuse(complete && target, "cannot set Complete=True and FailureTarget=true conditions")
	if s.CompletionTime != nil && !complete {
		r.Invalid(path.Child("completionTime"), s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
	}
	if s.CompletionTime == nil && complete {
		r.Required(path.Child("completionTime"), "completionTime is required for Complete jobs")
	}
	if s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		r.Invalid(path.Child("completionTime"), s.CompletionTime, "must be equal to or after `startTime`")
	}
	refuse(failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition")
	refuse(complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	if complete || failed {
		checkEnded(r, s, path)
	}
	refuse(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
}

func checkEnded(r *report.Report, s *batchv1.JobStatus, path *field.Path) {
	if s.Active > 0 {
		r.Invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job")
	}
	if s.StartTime == nil {
		r.Required(path.Child("startTime"), "startTime is required for finished job")
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Failed)+len(u.Succeeded) > 0 {
		r.Invalid(path.Child("uncountedTerminatedPods"), u, "must be empty for finished job")
	}
	if s.Terminating != nil && *s.Terminating > 0 {
		r.Invalid(path.Child("terminating"), s.Terminating, "terminating>0 is invalid for finished job")
	}
}

func checkIndexLists(r *report.Report, j *batchv1.Job, path *field.Path) {
	s := &j.Status
	if n := j.Spec.Completions; n != nil {
		if _, err := countIndexes(s.CompletedIndexes, *n); err != nil {
			r.Invalid(path.Child("completedIndexes"), s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %s", err))
		}
		if s.FailedIndexes != nil && j.Spec.BackoffLimitPerIndex != nil {
			if _, err := countIndexes(*s.FailedIndexes, *n); err != nil {
				r.Invalid(path.Child("failedIndexes"), s.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %s", err))
			}
		}
	}
	if s.CompletedIndexes != "" && !indexed(&j.Spec) {
		r.Invalid(path.Child("completedIndexes"), s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if s.FailedIndexes != nil && j.Spec.BackoffLimitPerIndex == nil {
		r.Invalid(path.Child("failedIndexes"), *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
}

// checkHistory keeps what has happened.
func checkHistory(r *report.Report, j, old *batchv1.Job, path *field.Path) {
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if is(old, kind) && !is(j, kind) {
			r.Invalid(path.Child("conditions"), field.OmitValueType{}, fmt.Sprintf("cannot disable the terminal %s=True condition", kind))
		}
	}
	s, was := &j.Status, &old.Status
	if s.Failed < was.Failed {
		r.Invalid(path.Child("failed"), s.Failed, "cannot decrease the failed counter")
	}
	if s.Succeeded < was.Succeeded {
		r.Invalid(path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter")
	}
	if s.CompletionTime != nil && was.CompletionTime != nil && !s.CompletionTime.Equal(was.CompletionTime) {
		r.Invalid(path.Child("completionTime"), s.CompletionTime, "field is immutable")
	}
	if was.StartTime != nil && !was.StartTime.Equal(s.StartTime) && !ptr.Deref(j.Spec.Suspend, false) {
		r.Invalid(path.Child("startTime"), s.StartTime, "field is immutable for unsuspended job once set")
	}
	if is(old, batchv1.JobSuccessCriteriaMet) && !is(j, batchv1.JobSuccessCriteriaMet) {
		r.Invalid(path.Child("conditions"), field.OmitValueType{}, "cannot disable the SuccessCriteriaMet=True condition")
	}
}
