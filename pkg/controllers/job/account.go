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

// maxUncounted is the maximum number of UIDs of ended pods in a status.
const maxUncounted = 500

// ledger is the result of counting in one sync.
type ledger struct {
	// open are the UIDs of pods that have not ended, or whose end is not counted yet.
	open sets.Set[types.UID]
	// release are pods that may lose the finalizer once the status is written.
	release []*v1.Pod
	// policy has, for each failure that was recorded or ignored, the action of the failure policy.
	policy []batchv1.PodFailurePolicyAction
	// full is true if there are more pods to count than one write of the status can record.
	full bool
}

// account updates the status: it counts the pods whose UIDs were recorded there before and that
// have lost the finalizer, and records the pods that ended since. If the job ends (end is not nil)
// without success, the remaining pods count as failed.
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

// releasable reports whether a pod no longer needs the finalizer once it is counted.
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

// settle moves pods that are no longer open from the recorded UIDs to the counters.
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

// announce writes to the status how the job will end, and returns the condition that it gets when
// it has ended.
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

// conclude ends the job unless some of its pods are not counted or are still terminating.
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
		// A suspension removed the start time, but a finished job must have one.
		status.StartTime = &end.LastTransitionTime
	}
	return true
}
