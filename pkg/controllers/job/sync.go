// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// parallel is the maximum number of requests for a job's pods that a sync sends at once.
const parallel = 32

// hands is the interface through which a sync sends its requests. Tests replace it.
type hands interface {
	// create creates a pod. It returns the pod's UID, or "" if the cache shows the pod already.
	create(ctx context.Context, job *batchv1.Job, pod *v1.Pod) (types.UID, error)
	// remove deletes a pod, and release removes the tracking finalizer from it. Both return a
	// NotFound error if the pod no longer exists.
	remove(ctx context.Context, job *batchv1.Job, pod *v1.Pod) error
	release(ctx context.Context, pod *v1.Pod) error
	writeStatus(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error)
}

// syncer syncs jobs. It contains all logic of the controller except for reading the caches.
type syncer struct {
	hands    hands
	clock    clock.Clock
	events   record.EventRecorder
	expected *controller.Expectations
	memories *memories
	metrics  *metrics
	// after queues a job's key when the duration d has passed.
	after func(key string, d time.Duration)
}

// sync syncs a job with its pods as the caches show them. complete reports whether the caches show
// all creations and deletions of pods that this controller has requested for the job.
func (y *syncer) sync(ctx context.Context, cached *batchv1.Job, pods []*v1.Pod, complete bool) error {
	start := y.clock.Now()
	action, err := y.advance(ctx, cached, pods, complete, start)
	y.metrics.synced(cached, action, y.clock.Since(start), err)
	return err
}

// advance does the work of sync, and returns the value of the metrics label action.
func (y *syncer) advance(ctx context.Context, cached *batchv1.Job, pods []*v1.Pod, complete bool,
	now time.Time) (string, error) {
	taken, old := y.memories.recall(cached, pods)
	s := newSurvey(cached.DeepCopy(), pods, taken, old, now)
	end := s.verdict()
	action := reconciling
	var failure error
	if end != nil {
		if failure = y.stop(ctx, s); failure != nil || !complete {
			end = nil // the job may end only when all its pods are counted, but the caches may not show all pods yet
		}
	} else {
		if left, limited := s.deadline(); limited {
			y.after(controller.Key(cached), left)
		}
		managed := complete && cached.DeletionTimestamp == nil
		if managed {
			action, failure = y.manage(ctx, s)
		}
		if s.hasEnough() {
			end = trueCondition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached,
				"Reached expected number of succeeded pods", s.now)
		} else if managed {
			y.showSuspension(s)
		}
	}
	status := &s.job.Status
	status.Active, status.Ready, status.Terminating = s.running, &s.ready, &s.terminating
	if err := y.track(ctx, s, cached, end); err != nil {
		return action, err
	}
	return action, failure
}

// stop deletes the job's active pods. Their finalizers remain until the pods have ended and are
// counted.
func (y *syncer) stop(ctx context.Context, s *survey) error {
	return y.discard(s, s.active, func(pod *v1.Pod) error { return y.hands.remove(ctx, s.job, pod) })
}

// manage creates or deletes pods as s.plan says, and returns the value of the metrics label action.
func (y *syncer) manage(ctx context.Context, s *survey) (string, error) {
	key, p := controller.Key(s.job), s.plan()
	switch {
	case p.wait > 0:
		y.after(key, max(p.wait, batchPeriod))
		return podsCreated, nil
	case len(p.remove) > 0:
		for _, pod := range p.remove {
			y.expected.ExpectDeletion(key, pod.UID)
		}
		return podsDeleted, y.discard(s, p.remove, func(pod *v1.Pod) error {
			// Remove the finalizer before the pod is deleted, so that this pod is not counted.
			y.memories.recordRelease(s.job, pod.UID)
			err := y.hands.release(ctx, pod)
			if err != nil {
				y.memories.undoRelease(s.job, pod.UID)
			} else {
				err = y.hands.remove(ctx, s.job, pod)
			}
			if err != nil {
				y.expected.Deleted(key, pod.UID)
			}
			return err
		})
	case len(p.create) > 0:
		return podsCreated, y.create(ctx, key, s, p.create)
	}
	return tracking, nil
}

// discard calls remove for each of the pods. For pods that were removed or did not exist, it
// decrements the numbers of running and ready pods and increments the number of terminating pods.
func (y *syncer) discard(s *survey, pods []*v1.Pod, remove func(*v1.Pod) error) error {
	errs := forEachPod(pods, remove)
	for i, pod := range pods {
		if errs[i] != nil && !apierrors.IsNotFound(errs[i]) {
			continue
		}
		errs[i] = nil
		s.running--
		s.terminating++
		if controller.Ready(pod) {
			s.ready--
		}
	}
	return firstError(errs)
}

func (y *syncer) create(ctx context.Context, key string, s *survey, indexes []int) error {
	made, err := y.expected.Create(key, len(indexes), func(i int) (types.UID, error) {
		uid, err := y.hands.create(ctx, s.job, newPod(s.job, indexes[i], s.predecessors[indexes[i]]))
		y.metrics.made(s, err)
		return uid, err
	})
	s.running += int32(made)
	return err
}

// showSuspension sets a condition and records an event when the job was suspended or resumed. It
// clears and sets the start time, so that the time of a suspension does not count towards the
// deadline.
func (y *syncer) showSuspension(s *survey) {
	if suspended(s.job) {
		if setCondition(s.job, *trueCondition(batchv1.JobSuspended, "JobSuspended", "Job suspended", s.now)) {
			y.events.Event(s.job, v1.EventTypeNormal, "Suspended", "Job suspended")
			s.job.Status.StartTime = nil
		}
		return
	}
	resumed := trueCondition(batchv1.JobSuspended, "JobResumed", "Job resumed", s.now)
	resumed.Status = v1.ConditionFalse
	if setCondition(s.job, *resumed) {
		y.events.Event(s.job, v1.EventTypeNormal, "Resumed", "Job resumed")
		s.job.Status.StartTime = &metav1.Time{Time: s.now}
	}
}

// track counts ended pods in the order that the package comment describes. If end is not nil, it
// ends the job when all pods are counted.
func (y *syncer) track(ctx context.Context, s *survey, cached *batchv1.Job, end *batchv1.JobCondition) error {
	l := s.account(end)
	end = s.announce(end)
	written, err := y.write(ctx, s, &cached.Status)
	if err != nil {
		return fmt.Errorf("record pods in status: %w", err)
	}
	for _, action := range l.policy {
		y.metrics.policy.WithLabelValues(string(action)).Inc()
	}
	failure := y.release(ctx, s, l)
	l.settle(&s.job.Status)
	over := failure == nil && !l.full && s.conclude(end)
	if _, err := y.write(ctx, s, written); err != nil {
		return errors.Join(failure, fmt.Errorf("count pods in status: %w", err))
	}
	if over {
		y.recordEnd(s.job, end)
	}
	return failure
}

// write writes the status of s.job if it differs from the earlier status. It returns the status
// that the API server has then.
func (y *syncer) write(ctx context.Context, s *survey, was *batchv1.JobStatus) (*batchv1.JobStatus, error) {
	if equality.Semantic.DeepEqual(*was, s.job.Status) {
		return was, nil
	}
	job, err := y.hands.writeStatus(ctx, s.job)
	if err != nil {
		return nil, err
	}
	y.memories.recordWrite(job, s.backoff)
	y.metrics.addCounted(job, was)
	s.job = job.DeepCopy()
	if s.job.Status.UncountedTerminatedPods == nil {
		s.job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	return &job.Status, nil
}

// release removes the tracking finalizer from the pods in l.release.
func (y *syncer) release(ctx context.Context, s *survey, l *ledger) error {
	errs := forEachPod(l.release, func(pod *v1.Pod) error {
		y.memories.recordRelease(s.job, pod.UID)
		err := y.hands.release(ctx, pod)
		if apierrors.IsNotFound(err) {
			return nil // the pod was deleted, so it has no finalizer any more
		}
		if err != nil {
			y.memories.undoRelease(s.job, pod.UID)
		}
		return err
	})
	for i, pod := range l.release {
		if errs[i] == nil {
			l.open.Delete(pod.UID)
		}
	}
	return firstError(errs)
}

func (y *syncer) recordEnd(job *batchv1.Job, end *batchv1.JobCondition) {
	y.metrics.ended(job, end)
	if end.Type == batchv1.JobFailed {
		y.events.Event(job, v1.EventTypeWarning, end.Reason, end.Message)
		return
	}
	if n := job.Spec.Completions; n != nil && job.Status.Succeeded > *n {
		y.events.Event(job, v1.EventTypeWarning, "TooManySucceededPods",
			"Too many succeeded pods running after completion count reached")
	}
	y.events.Event(job, v1.EventTypeNormal, "Completed", "Job completed")
}

// forEachPod calls f for all pods, up to 32 at a time, and returns the errors in the order of the
// pods.
func forEachPod(pods []*v1.Pod, f func(*v1.Pod) error) []error {
	errs := make([]error, len(pods))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, pod := range pods {
		g.Go(func() error {
			errs[i] = f(pod)
			return nil
		})
	}
	_ = g.Wait() // ignore the error: errs contains the errors of all pods
	return errs
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
