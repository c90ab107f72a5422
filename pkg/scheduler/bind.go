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

	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// bind carries out a decision: first volumes and devices, which may take
// minutes, then the binding.
func (s *Scheduler) bind(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, start time.Time) {
	b := &binding{profile: p.Name, pod: item.Pod, node: d.node, done: func(err error, told bool) {
		s.finish(ctx, p, item, d, start, err, told)
	}}
	ext := binderOf(s.cfg.Profiles.Extenders, item.Pod)
	if d.volumes.empty() && len(d.claims) == 0 && ext == nil {
		s.binder.add(ctx, b)
		return
	}
	// Waiting for a provisioner, or for an extender, must not hold up others.
	s.running.Go(func() {
		if len(d.claims) > 0 {
			b.done = func(err error, told bool) {
				// Beside the answers to other bindings.
				s.running.Go(func() {
					if err != nil {
						s.unreserve(ctx, item.Pod, d, err)
					}
					s.finish(ctx, p, item, d, start, err, told)
				})
			}
		}
		err := s.prepareVolumes(ctx, item.Pod, d)
		if err == nil {
			err = s.prepareClaims(ctx, p, item.Pod, d)
		}
		if err != nil {
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

// finish takes down how the binding came out. told says that the event about it
// has been written.
func (s *Scheduler) finish(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, start time.Time, err error, told bool) {
	pod := item.Pod
	if err != nil {
		s.undo(pod, d)
		s.fail(ctx, p, item, fmt.Errorf("binding rejected: %w", err), start)
		return
	}
	s.mu.Lock()
	s.view.reserved.release(d.volumes)
	s.mu.Unlock()
	s.queue.Done(pod.UID)
	s.metrics.bound(p.Name, s.cfg.Clock.Since(start), s.cfg.Clock.Since(item.Since))
	if !told {
		s.events[p.Name].scheduled(pod, d.node)
	}
}

// undo takes back what decide assumed. Another pod may fit now.
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

// podGone reports whether err says that the pod itself is gone, and not a claim or a volume of it.
func podGone(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Kind == "pods"
}

// fail puts a pod back after an error; a pod that is gone just leaves the queue.
func (s *Scheduler) fail(ctx context.Context, p *profile.Profile, item *queue.Item, err error, start time.Time) {
	pod := item.Pod
	switch {
	case podGone(err):
		s.queue.Delete(pod.UID)
		return
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return // the next scheduler starts from what the API shows
	}
	s.metrics.attempt(resultError, p.Name, s.cfg.Clock.Since(start))
	s.cfg.Log.Warn("pod not scheduled", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	s.queue.Retry(item)
	s.report(&verdict{profile: p, pod: pod, condition: conditionOf(reasonSchedulerError, err.Error()), nominated: pod.Status.NominatedNodeName})
}
