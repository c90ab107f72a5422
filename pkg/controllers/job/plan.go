// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// burst is the maximum number of pods that one sync creates or deletes.
const burst = 500

// verdict returns the condition with which the job will end, or nil if it is not decided yet. If
// the status already contains such a condition, verdict returns the same end.
func (s *survey) verdict() *batchv1.JobCondition {
	job := s.job
	if isTrue(job, batchv1.JobSuccessCriteriaMet) {
		return condition(job, batchv1.JobSuccessCriteriaMet)
	}
	if isTrue(job, batchv1.JobFailureTarget) {
		c := condition(job, batchv1.JobFailureTarget)
		return trueCondition(batchv1.JobFailed, c.Reason, c.Message, s.now)
	}
	for _, pod := range s.pods {
		if failed(job, pod) {
			if r := applyPolicy(job.Spec.PodFailurePolicy, pod); r.action == batchv1.PodFailurePolicyActionFailJob {
				return s.failure(batchv1.JobReasonPodFailurePolicy, r.message)
			}
		}
	}
	switch left, limited := s.deadline(); {
	case s.failed > int(*job.Spec.BackoffLimit) || s.restartsExceeded():
		return s.failure(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case limited && left <= 0:
		return s.failure(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case !indexed(job):
		return nil
	}
	lost := s.failedIndexes.count()
	switch {
	case job.Spec.BackoffLimitPerIndex == nil:
	case job.Spec.MaxFailedIndexes != nil && lost > int(*job.Spec.MaxFailedIndexes):
		return s.failure(batchv1.JobReasonMaxFailedIndexesExceeded,
			"Job has exceeded the specified maximal number of failed indexes")
	case lost > 0 && lost+s.doneIndexes.count() >= s.completions():
		return s.failure(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	}
	if message, met := meets(job.Spec.SuccessPolicy, s.completions(), s.doneIndexes); met {
		return trueCondition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonSuccessPolicy, message, s.now)
	}
	return nil
}

func (s *survey) failure(reason, message string) *batchv1.JobCondition {
	return trueCondition(batchv1.JobFailureTarget, reason, message, s.now)
}

// hasEnough reports whether the job has as many succeeded pods as it needs and no running pods.
func (s *survey) hasEnough() bool {
	if n := s.job.Spec.Completions; n != nil {
		return s.running == 0 && s.succeeded >= int(*n)
	}
	return s.running == 0 && s.succeeded > 0
}

// deadline returns how long the job may still run. It returns false if the job has no time limit or
// has not started.
func (s *survey) deadline() (time.Duration, bool) {
	limit, start := s.job.Spec.ActiveDeadlineSeconds, s.job.Status.StartTime
	if limit == nil || start == nil || suspended(s.job) {
		return 0, false
	}
	return time.Duration(*limit)*time.Second - s.now.Sub(start.Time), true
}

// restartsExceeded reports whether the number of restarts of all containers in the job's pending
// and running pods has reached the back-off limit, or 1 if the limit is 0. It returns false unless
// the restart policy is OnFailure.
func (s *survey) restartsExceeded() bool {
	if s.job.Spec.Template.Spec.RestartPolicy != v1.RestartPolicyOnFailure {
		return false
	}
	var n int32
	for _, pod := range s.pods {
		if pod.Status.Phase != v1.PodRunning && pod.Status.Phase != v1.PodPending {
			continue
		}
		for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range list {
				n += list[i].RestartCount
			}
		}
	}
	return n >= max(*s.job.Spec.BackoffLimit, 1)
}

// plan is what to do with the pods of a job that does not end. It removes pods or creates pods,
// never both.
type plan struct {
	remove []*v1.Pod
	// create are the indexes of the pods to create, or noIndex for each pod of a job that is not
	// Indexed.
	create []int
	// wait is how long to wait because of a back-off before more pods may be created. It is 0 if
	// there is no back-off.
	wait time.Duration
}

func (s *survey) plan() plan {
	if suspended(s.job) {
		return plan{remove: surplus(s.job, s.active, len(s.active))}
	}
	active, want := len(s.active), s.wanted()
	if remove := surplus(s.job, s.active, max(0, active-want)); len(remove) > 0 {
		return plan{remove: remove[:min(len(remove), burst)]}
	}
	n := want - active
	if onlyFailedReplaced(s.job) {
		n -= int(s.terminating)
	}
	if n <= 0 {
		return plan{}
	}
	perIndex := s.job.Spec.BackoffLimitPerIndex != nil
	if wait := s.backoff.remaining(s.now); wait > 0 && !perIndex {
		return plan{wait: wait}
	}
	n = min(n, burst)
	switch {
	case !indexed(s.job):
		p := plan{create: make([]int, n)}
		for i := range p.create {
			p.create[i] = noIndex
		}
		return p
	case perIndex:
		return s.planReady(s.pending(n))
	}
	return plan{create: s.pending(n)}
}

// wanted returns how many pods should run now.
func (s *survey) wanted() int {
	parallelism := int(*s.job.Spec.Parallelism)
	if n := s.job.Spec.Completions; n != nil {
		return max(0, min(int(*n)-s.succeeded, parallelism))
	}
	if s.succeeded > 0 {
		return len(s.active) // a success means that all work is done; let the running pods end and create no others
	}
	return parallelism
}

// pending returns the lowest n indexes that have not succeeded or failed and have no pod.
func (s *survey) pending(n int) []int {
	settled := s.doneIndexes.union(s.failedIndexes).union(indexesOf(s.active))
	if onlyFailedReplaced(s.job) {
		var ending []*v1.Pod
		for _, pod := range s.pods {
			if terminating(pod) {
				ending = append(ending, pod)
			}
		}
		settled = settled.union(indexesOf(ending))
	}
	return settled.missing(n, s.completions())
}

// planReady plans to create pods for those candidates whose own back-off has ended. If there are
// none, it plans to wait until the first back-off ends.
func (s *survey) planReady(candidates []int) plan {
	var p plan
	for _, index := range candidates {
		var left time.Duration
		if pod := s.predecessors[index]; pod != nil {
			left = backoff{failures: allFailures(pod) + 1, last: endTime(pod)}.remaining(s.now)
		}
		if left == 0 {
			p.create = append(p.create, index)
		} else if p.wait == 0 || left < p.wait {
			p.wait = left
		}
	}
	if len(p.create) > 0 {
		p.wait = 0
	}
	return p
}
