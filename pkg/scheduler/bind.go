// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// bind carries out a decision: it prepares volumes and devices, which may take minutes, and then
// binds the pod.
func (s *Scheduler) bind(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, start time.Time) {
	b := &binding{profile: p.Name, pod: item.Pod, node: d.node, done: func(err error, eventWritten bool) {
		s.finish(ctx, p, item, d, start, err, eventWritten)
	}}
	s.metrics.binding().Inc()
	ext := binderOf(s.cfg.Profiles.Extenders, item.Pod)
	if d.volumes.empty() && len(d.claims) == 0 && ext == nil {
		s.binder.add(ctx, b)
		return
	}
	// Run this in a goroutine, because waiting for a volume provisioner or an extender must not
	// delay other pods.
	s.running.Go(func() {
		if len(d.claims) > 0 {
			b.done = func(err error, eventWritten bool) {
				// Run done in its own goroutine, so that it does not delay the results of other
				// bindings.
				s.running.Go(func() {
					if err != nil {
						s.unreserve(ctx, item.Pod, d, err)
					}
					s.finish(ctx, p, item, d, start, err, eventWritten)
				})
			}
		}
		if err := s.prepare(ctx, p, item.Pod, d); err != nil {
			b.done(err, false)
			return
		}
		if ext != nil {
			b.done(ext.Bind(ctx, item.Pod, d.node), false)
			return
		}
		s.binder.add(ctx, b)
	})
}

// prepare prepares the volumes and devices of a pod.
func (s *Scheduler) prepare(ctx context.Context, p *profile.Profile, pod *v1.Pod, d decision) error {
	start := s.cfg.Clock.Now()
	err := s.prepareVolumes(ctx, pod, d)
	if err == nil {
		err = s.prepareClaims(ctx, p, pod, d)
	}
	s.metrics.points[p.Name].observe(preBind, codeOfError(err), s.cfg.Clock.Since(start))
	return err
}

// finish handles the result of a binding. eventWritten is true if the server has already written
// the pod's Scheduled event.
func (s *Scheduler) finish(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, start time.Time,
	err error, eventWritten bool) {
	pod := item.Pod
	s.metrics.binding().Dec()
	if err != nil {
		s.undo(pod, d)
		s.fail(ctx, p, item, fmt.Errorf("binding rejected: %w", err), start)
		return
	}
	s.mu.Lock()
	s.view.reserved.release(d.volumes)
	s.mu.Unlock()
	s.queue.Done(pod.UID)
	s.reportGroup(pod, metav1.ConditionTrue, reasonGroupScheduled, "")
	s.metrics.bound(p.Name, item, s.cfg.Clock.Since(start), s.cfg.Clock.Since(item.Tried))
	s.traceBinding(ctx, item, d, start)
	if !eventWritten {
		s.events[p.Name].scheduled(pod, d.node)
	}
}

// undo reverses what decide assumed about a pod: its node, volumes and devices. Other waiting pods
// may fit afterwards.
func (s *Scheduler) undo(pod *v1.Pod, d decision) {
	s.mu.Lock()
	s.forget(pod, d)
	s.mu.Unlock()
	events := scheduling.PodRemoved
	if len(d.claims) > 0 {
		events |= scheduling.DevicesChanged
	}
	if !d.volumes.empty() {
		events |= scheduling.VolumesChanged
	}
	s.queue.Happened(events)
}

// podGone reports whether err means that the pod does not exist, rather than one of its claims or
// volumes.
func podGone(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Kind == "pods"
}

// fail puts a pod back into the queue after an error. If the pod no longer exists, fail removes it
// from the queue.
func (s *Scheduler) fail(ctx context.Context, p *profile.Profile, item *queue.Item, err error, start time.Time) {
	pod := item.Pod
	switch {
	case podGone(err):
		s.queue.Delete(pod.UID)
		return
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return // the process ends, and the next scheduler reads the pod from the API server
	}
	s.metrics.attempt(resultError, p.Name, s.cfg.Clock.Since(start))
	s.cfg.Log.Warn("Failed to schedule pod", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	s.queue.Retry(item)
	s.report(&verdict{profile: p, pod: pod, condition: conditionOf(reasonSchedulerError, err.Error()),
		nominated: pod.Status.NominatedNodeName})
}
