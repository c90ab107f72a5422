// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/report"
)

// statusUpdate validates an update of a job's status. Controllers outside of Kubernetes can manage
// jobs, so the server checks that the status is consistent. Most rules check only values that
// change: after a change of the spec, the stored status may violate rules until the controller
// corrects it.
type statusUpdate struct {
	report.Report
	job, old *batchv1.Job
	s, was   *batchv1.JobStatus
	path     *field.Path
}

func validateJobStatus(_ context.Context, j, old *batchv1.Job) field.ErrorList {
	u := &statusUpdate{job: j, old: old, s: &j.Status, was: &old.Status, path: field.NewPath("status")}
	u.checkCounts()
	u.checkConditions()
	u.checkEnded()
	u.checkIndexLists()
	u.checkPods()
	u.checkSuccess()
	u.checkHistory()
	return u.Errors
}

// turned reports whether the update makes a condition of one of the kinds true, or no longer true.
func (u *statusUpdate) turned(kinds ...batchv1.JobConditionType) bool {
	for _, kind := range kinds {
		if is(u.job, kind) != is(u.old, kind) {
			return true
		}
	}
	return false
}

func ended(j *batchv1.Job) bool { return is(j, batchv1.JobComplete) || is(j, batchv1.JobFailed) }

func (u *statusUpdate) refuse(when bool, detail string) {
	if when {
		u.Invalid(u.path.Child("conditions"), field.OmitValueType{}, detail)
	}
}

func (u *statusUpdate) checkCounts() {
	s, path := u.s, u.path
	u.NotNegative(path.Child("active"), int64(s.Active))
	u.NotNegative(path.Child("succeeded"), int64(s.Succeeded))
	u.NotNegative(path.Child("failed"), int64(s.Failed))
	if s.Ready != nil {
		u.NotNegative(path.Child("ready"), int64(*s.Ready))
	}
	if s.Terminating != nil {
		u.NotNegative(path.Child("terminating"), int64(*s.Terminating))
	}
	checkUncounted(&u.Report, s.UncountedTerminatedPods, path.Child("uncountedTerminatedPods"))
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

// checkConditions checks the conditions that end the job, and the completion time.
func (u *statusUpdate) checkConditions() {
	s, path := u.s, u.path
	complete, failed := is(u.job, batchv1.JobComplete), is(u.job, batchv1.JobFailed)
	started, stopped := !s.StartTime.Equal(u.was.StartTime), !s.CompletionTime.Equal(u.was.CompletionTime)
	u.refuse(u.turned(batchv1.JobComplete, batchv1.JobFailed) && complete &&
		failed, "cannot set Complete=True and Failed=true conditions")
	u.refuse(u.turned(batchv1.JobComplete, batchv1.JobFailureTarget) && complete && is(u.job, batchv1.JobFailureTarget),
		"cannot set Complete=True and FailureTarget=true conditions")
	if u.turned(batchv1.JobComplete) || stopped {
		if s.CompletionTime != nil && !complete {
			u.Invalid(path.Child("completionTime"), s.CompletionTime,
				"cannot set completionTime when there is no Complete=True condition")
		}
		if s.CompletionTime == nil && complete {
			u.Required(path.Child("completionTime"), "completionTime is required for Complete jobs")
		}
	}
	if (started || stopped) && s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		u.Invalid(path.Child("completionTime"), s.CompletionTime, "must be equal to or after `startTime`")
	}
	u.refuse((u.turned(batchv1.JobFailed) || u.failedIndexesChanged()) && failed && !is(u.job, batchv1.JobFailureTarget),
		"cannot set Failed=True condition without the FailureTarget=true condition")
	u.refuse(u.turned(batchv1.JobComplete, batchv1.JobSuccessCriteriaMet) && complete &&
		!is(u.job, batchv1.JobSuccessCriteriaMet),
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
}

// checkEnded checks the fields that the status of a finished job must have or must not have.
func (u *statusUpdate) checkEnded() {
	s, path := u.s, u.path
	if !ended(u.job) {
		return
	}
	now := ended(u.job) != ended(u.old)
	if (now || s.Active != u.was.Active) && s.Active > 0 {
		u.Invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job")
	}
	nothingToDo := ptr.Deref(u.job.Spec.Suspend, false) && ptr.Equal(u.job.Spec.Completions, ptr.To[int32](0))
	if (now || !s.StartTime.Equal(u.was.StartTime)) && s.StartTime == nil && !nothingToDo {
		u.Required(path.Child("startTime"), "startTime is required for finished job")
	}
	noted := s.UncountedTerminatedPods
	if (now || !equality.Semantic.DeepEqual(noted, u.was.UncountedTerminatedPods)) && noted != nil &&
		len(noted.Failed)+len(noted.Succeeded) > 0 {
		u.Invalid(path.Child("uncountedTerminatedPods"), noted, "must be empty for finished job")
	}
}

func (u *statusUpdate) failedIndexesChanged() bool {
	return !ptr.Equal(u.s.FailedIndexes, u.was.FailedIndexes)
}

func (u *statusUpdate) checkIndexLists() {
	s, spec, path := u.s, &u.job.Spec, u.path
	completed, failed := s.CompletedIndexes != u.was.CompletedIndexes, u.failedIndexesChanged()
	if completed && spec.Completions != nil {
		if _, err := countIndexes(s.CompletedIndexes, *spec.Completions); err != nil {
			u.Invalid(path.Child("completedIndexes"), s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %s", err))
		}
	}
	if failed && spec.Completions != nil && spec.BackoffLimitPerIndex != nil && s.FailedIndexes != nil {
		if _, err := countIndexes(*s.FailedIndexes, *spec.Completions); err != nil {
			u.Invalid(path.Child("failedIndexes"), s.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %s", err))
		}
	}
	if completed && s.CompletedIndexes != "" && !indexed(spec) {
		u.Invalid(path.Child("completedIndexes"), s.CompletedIndexes,
			"cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if failed && spec.BackoffLimitPerIndex == nil && s.FailedIndexes != nil {
		u.Invalid(path.Child("failedIndexes"), *s.FailedIndexes,
			"cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if (completed || failed) && spec.Completions != nil && s.FailedIndexes != nil {
		if at, both := overlap(s.CompletedIndexes, *s.FailedIndexes, *spec.Completions); both {
			u.Invalid(path.Child("failedIndexes"), *s.FailedIndexes,
				fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", at))
		}
	}
}

// overlap returns the first index that is in both lists of indexes. It skips malformed parts of the
// lists, which other checks report.
func overlap(a, b string, completions int32) (int32, bool) {
	x, y := intervals(a, completions), intervals(b, completions)
	for len(x) > 0 && len(y) > 0 {
		if x[0].first <= y[0].last && y[0].first <= x[0].last {
			return max(x[0].first, y[0].first), true
		}
		if x[0].first <= y[0].first {
			x = x[1:]
		} else {
			y = y[1:]
		}
	}
	return 0, false
}

type interval struct{ first, last int32 }

func intervals(text string, completions int32) []interval {
	var out []interval
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, err := parseIndex(low, completions)
		if err != nil {
			continue
		}
		if last, err := parseIndex(high, completions); err == nil && first <= last {
			out = append(out, interval{first, last})
		}
	}
	return out
}

func (u *statusUpdate) checkPods() {
	s, was := u.s, u.was
	if (ended(u.job) != ended(u.old) || !ptr.Equal(s.Terminating, was.Terminating)) && ended(u.job) &&
		ptr.Deref(s.Terminating, 0) > 0 {
		u.Invalid(u.path.Child("terminating"), s.Terminating, "terminating>0 is invalid for finished job")
	}
	if (!ptr.Equal(s.Ready, was.Ready) || s.Active != was.Active) && s.Ready != nil && *s.Ready > s.Active {
		u.Invalid(u.path.Child("ready"), *s.Ready, "cannot set more ready pods than active")
	}
}

func (u *statusUpdate) checkSuccess() {
	met := is(u.job, batchv1.JobSuccessCriteriaMet)
	u.refuse(met && is(u.job, batchv1.JobFailed), "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	u.refuse(met && is(u.job, batchv1.JobFailureTarget),
		"cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	u.refuse(u.job.Spec.SuccessPolicy != nil && !met && is(u.job, batchv1.JobComplete),
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

// checkHistory rejects changes that would undo progress, such as a smaller number of failed pods.
func (u *statusUpdate) checkHistory() {
	s, was, spec := u.s, u.was, &u.job.Spec
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		u.refuse(is(u.old, kind) && !is(u.job, kind), fmt.Sprintf("cannot disable the terminal %s=True condition", kind))
	}
	if s.Failed < was.Failed {
		u.Invalid(u.path.Child("failed"), s.Failed, "cannot decrease the failed counter")
	}
	// If completions and parallelism are equal, an update of the spec can reduce both. The number
	// of succeeded indexes may then become smaller.
	elastic := indexed(spec) && ptr.Equal(spec.Completions, spec.Parallelism)
	if s.Succeeded < was.Succeeded && !elastic {
		u.Invalid(u.path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter")
	}
	if s.CompletionTime != nil && was.CompletionTime != nil && !s.CompletionTime.Equal(was.CompletionTime) {
		u.Invalid(u.path.Child("completionTime"), s.CompletionTime, "field is immutable")
	}
	resumes := is(u.old, batchv1.JobSuspended) && isFalse(u.job, batchv1.JobSuspended)
	if was.StartTime != nil && !was.StartTime.Equal(s.StartTime) && !ptr.Deref(spec.Suspend, false) && !resumes {
		u.Invalid(u.path.Child("startTime"), s.StartTime, "field is immutable for unsuspended job once set")
	}
	met, wasMet := is(u.job, batchv1.JobSuccessCriteriaMet), is(u.old, batchv1.JobSuccessCriteriaMet)
	u.refuse(wasMet && !met, "cannot disable the SuccessCriteriaMet=True condition")
	u.refuse(is(u.old, batchv1.JobComplete) && !wasMet &&
		met, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

func isFalse(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}
