// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// survey holds the data about a job from which a sync makes its decisions.
type survey struct {
	// job is a copy of the job in the cache. The sync changes its status and writes it.
	job  *batchv1.Job
	pods []*v1.Pod
	// released are the pods whose finalizer was removed although the cache still shows it. active
	// are the pods that have not ended and are not being deleted.
	released sets.Set[types.UID]
	active   []*v1.Pod
	// newFailed are the failed pods that are not recorded in the status yet.
	newFailed []*v1.Pod
	backoff   backoff
	// succeeded and failed are the numbers of succeeded and failed pods, including pods that are
	// not recorded in the status yet.
	succeeded, failed int
	// running, ready and terminating are numbers of pods. The sync updates them when it creates or
	// deletes pods.
	running, ready, terminating int32
	// completed are the succeeded indexes in the status. doneIndexes also contains the indexes that
	// have succeeded since. failedIndexes are the indexes that have failed for good.
	completed, doneIndexes, failedIndexes indexes
	// predecessors are the last failed pods of indexes that need another pod, by index. They keep
	// the finalizer until their replacement is created, because it takes over their number of
	// failures.
	predecessors map[int]*v1.Pod
	now          time.Time
}

// newSurvey returns the survey of a job with the given pods. The argument taken are the pods whose
// finalizer was removed although the cache still shows it. old is the back-off before this sync.
func newSurvey(job *batchv1.Job, pods []*v1.Pod, taken sets.Set[types.UID], old backoff, now time.Time) *survey {
	s := &survey{job: job, pods: slices.Clone(pods), released: taken, now: now}
	if job.Status.UncountedTerminatedPods == nil {
		job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if job.Status.StartTime == nil && !suspended(job) {
		job.Status.StartTime = &metav1.Time{Time: now}
	}
	uncounted := job.Status.UncountedTerminatedPods
	var newSucceeded []*v1.Pod
	for _, pod := range pods {
		if controller.Active(pod) {
			s.active = append(s.active, pod)
			if controller.Ready(pod) {
				s.ready++
			}
		}
		if terminating(pod) {
			s.terminating++
		}
		switch {
		case !s.countable(pod):
		case pod.Status.Phase == v1.PodSucceeded && !slices.Contains(uncounted.Succeeded, pod.UID):
			newSucceeded = append(newSucceeded, pod)
		case failed(job, pod) && !slices.Contains(uncounted.Failed, pod.UID):
			s.newFailed = append(s.newFailed, pod)
		}
	}
	s.running = int32(len(s.active))
	s.backoff = old.after(newSucceeded, s.newFailed)
	s.succeeded = int(job.Status.Succeeded) + len(uncounted.Succeeded) + len(newSucceeded)
	s.failed = int(job.Status.Failed) + len(uncounted.Failed)
	for _, pod := range s.newFailed {
		if applyPolicy(job.Spec.PodFailurePolicy, pod).counts() {
			s.failed++
		}
	}
	if indexed(job) {
		s.surveyIndexes()
	}
	return s
}

// open reports whether a pod still has the tracking finalizer, so that it has not ended or its end
// is not counted yet.
func (s *survey) open(pod *v1.Pod) bool { return tracked(pod) && !s.released.Has(pod.UID) }

// countable reports whether a pod is open and, if the job is Indexed, has one of the job's indexes.
func (s *survey) countable(pod *v1.Pod) bool { return s.open(pod) && s.valid(indexOf(pod)) }

func (s *survey) valid(index int) bool {
	return !indexed(s.job) || index != noIndex && index < s.completions()
}

// completions returns the number of indexes of an Indexed job.
func (s *survey) completions() int { return int(*s.job.Spec.Completions) }

func (s *survey) surveyIndexes() {
	// Sort the pods, so that they are counted in the order of their indexes.
	slices.SortStableFunc(s.pods, func(a, b *v1.Pod) int { return indexOf(a) - indexOf(b) })
	limited := s.job.Spec.BackoffLimitPerIndex != nil
	s.completed = parseIndexes(s.job.Status.CompletedIndexes, s.completions())
	var done, lost []int
	for _, pod := range s.pods {
		if !tracked(pod) || !s.valid(indexOf(pod)) {
			continue
		}
		if pod.Status.Phase == v1.PodSucceeded {
			done = append(done, indexOf(pod))
		}
		if limited && s.exhausts(pod) {
			lost = append(lost, indexOf(pod))
		}
	}
	s.doneIndexes = s.completed.union(indexSet(done))
	s.succeeded = s.doneIndexes.count()
	if !limited {
		return
	}
	if was := s.job.Status.FailedIndexes; was != nil {
		s.failedIndexes = parseIndexes(*was, s.completions())
	}
	s.failedIndexes = s.failedIndexes.union(indexSet(lost))
	s.predecessors = s.findPredecessors()
}

// exhausts reports whether the failure of a pod makes its index fail for good: its index has
// reached the limit of failures, or the failure policy says so.
func (s *survey) exhausts(pod *v1.Pod) bool {
	if !failed(s.job, pod) {
		return false
	}
	r := applyPolicy(s.job.Spec.PodFailurePolicy, pod)
	if r.action == batchv1.PodFailurePolicyActionFailIndex {
		return true
	}
	counted, _ := indexFailures(pod)
	return r.counts() && counted >= *s.job.Spec.BackoffLimitPerIndex
}

// findPredecessors returns the last failed pod of each index that needs another pod, by index.
func (s *survey) findPredecessors() map[int]*v1.Pod {
	settled := s.doneIndexes.union(s.failedIndexes).union(indexesOf(s.active))
	out := map[int]*v1.Pod{}
	for _, pod := range s.pods {
		index := indexOf(pod)
		if !s.countable(pod) || !failed(s.job, pod) || settled.has(index) {
			continue
		}
		if have := out[index]; have == nil || allFailures(have) <= allFailures(pod) && !endTime(pod).Before(endTime(have)) {
			out[index] = pod
		}
	}
	return out
}

func allFailures(pod *v1.Pod) int32 {
	counted, ignored := indexFailures(pod)
	return counted + ignored
}
