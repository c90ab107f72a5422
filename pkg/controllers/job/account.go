// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// maxUncounted is the maximum number of UIDs of ended pods that one write of the status records.
const maxUncounted = 500

// ledger records which ended pods a sync has counted, and from which pods it must remove the
// tracking finalizer.
type ledger struct {
	// open are the UIDs of pods that still have the finalizer: they have not ended, or their end is
	// not counted yet.
	open sets.Set[types.UID]
	// release are the pods whose finalizer must be removed after the status is written.
	release []*v1.Pod
	// policy is the list of failure policy actions that matched a failed pod in this sync.
	policy []batchv1.PodFailurePolicyAction
	// full is true if there are more pods to count than one write of the status can record.
	full bool
}

// account updates the status. First it counts the pods whose UIDs earlier syncs recorded in the
// status and that no longer have the finalizer. Then it records the pods that have ended since. The
// argument end is the condition with which the job ends, or nil; if the job ends without success,
// all remaining pods count as failed.
func (s *survey) account(end *batchv1.JobCondition) *ledger {
	l := &ledger{open: sets.New[types.UID]()}
	for _, pod := range s.pods {
		if s.open(pod) {
			l.open.Insert(pod.UID)
		}
	}
	l.settle(&s.job.Status)
	noted := s.job.Status.UncountedTerminatedPods
	wasSucceeded, wasFailed := sets.New(noted.Succeeded...), sets.New(noted.Failed...)
	allFailed := end != nil && end.Type != batchv1.JobSuccessCriteriaMet
	newIndexes := 0
	for _, pod := range s.pods {
		if !s.open(pod) || !s.releasable(pod, end) {
			continue
		}
		l.release = append(l.release, pod)
		switch {
		case pod.Status.Phase == v1.PodSucceeded && !wasFailed.Has(pod.UID):
			if !indexed(s.job) && !wasSucceeded.Has(pod.UID) {
				noted.Succeeded = append(noted.Succeeded, pod.UID)
			}
			if indexed(s.job) && s.valid(indexOf(pod)) && !s.completed.has(indexOf(pod)) {
				newIndexes++
			}
		case failed(s.job, pod) || allFailed:
			if wasFailed.Has(pod.UID) || !s.valid(indexOf(pod)) {
				break
			}
			r := applyPolicy(s.job.Spec.PodFailurePolicy, pod)
			if r.matched {
				l.policy = append(l.policy, r.action)
			}
			if r.counts() {
				noted.Failed = append(noted.Failed, pod.UID)
			}
		}
		if newIndexes+len(noted.Succeeded)+len(noted.Failed) >= maxUncounted {
			l.full = true
			break
		}
	}
	if indexed(s.job) {
		s.noteIndexes()
	}
	return l
}

// releasable reports whether the finalizer may be removed from a pod after its end is recorded. The
// last failed pod of an index that still needs a replacement keeps the finalizer.
func (s *survey) releasable(pod *v1.Pod, end *batchv1.JobCondition) bool {
	if s.job.DeletionTimestamp != nil || end != nil || pod.Status.Phase == v1.PodSucceeded {
		return true
	}
	p := s.predecessors[indexOf(pod)]
	return failed(s.job, pod) && (p == nil || p.UID != pod.UID)
}

func (s *survey) noteIndexes() {
	status := &s.job.Status
	status.Succeeded, status.CompletedIndexes = int32(s.doneIndexes.count()), s.doneIndexes.String()
	status.FailedIndexes = nil
	if s.job.Spec.BackoffLimitPerIndex != nil {
		text := s.failedIndexes.String()
		status.FailedIndexes = &text
	}
}

// settle increments the counters in the status for pods whose UIDs are recorded there and that no
// longer have the finalizer, and removes these UIDs.
func (l *ledger) settle(status *batchv1.JobStatus) {
	closed := func(uid types.UID) bool { return !l.open.Has(uid) }
	move := func(list []types.UID, counter *int32) []types.UID {
		left := slices.DeleteFunc(slices.Clone(list), closed)
		*counter += int32(len(list) - len(left))
		return left
	}
	noted := status.UncountedTerminatedPods
	noted.Succeeded = move(noted.Succeeded, &status.Succeeded)
	noted.Failed = move(noted.Failed, &status.Failed)
}

// announce sets the condition in the status that says how the job will end (SuccessCriteriaMet or
// FailureTarget). It returns the condition to set when all pods are counted (Complete or Failed).
func (s *survey) announce(end *batchv1.JobCondition) *batchv1.JobCondition {
	if end == nil {
		return nil
	}
	last := batchv1.JobFailed
	switch end.Type {
	case batchv1.JobFailed:
		return end
	case batchv1.JobSuccessCriteriaMet:
		last = batchv1.JobComplete
	}
	setCondition(s.job, *end)
	return trueCondition(last, end.Reason, end.Message, s.now)
}

// conclude sets the final condition end and returns true, unless end is nil or some pods are not
// counted or still terminating.
func (s *survey) conclude(end *batchv1.JobCondition) bool {
	noted := s.job.Status.UncountedTerminatedPods
	if end == nil || len(noted.Succeeded)+len(noted.Failed) > 0 || s.terminating > 0 {
		return false
	}
	status := &s.job.Status
	setCondition(s.job, *end)
	if end.Type == batchv1.JobComplete {
		status.CompletionTime = &end.LastTransitionTime
	}
	if n := s.job.Spec.Completions; status.StartTime == nil && (n == nil || *n > 0) {
		// A suspended job has no start time, but the API requires one for a finished job.
		status.StartTime = &end.LastTransitionTime
	}
	return true
}
