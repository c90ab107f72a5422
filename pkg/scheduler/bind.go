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

// bind carries out a decision: first the volumes, which may take minutes, then
// the binding.
func (s *Scheduler) bind(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, start time.Time) {
	if d.volumes.empty() {
		s.call(func() { s.finish(ctx, p, item, d, start, nil) })
		return
	}
	// Outside the bounded calls: waiting for a provisioner must not hold up others.
	s.running.Go(func() {
		err := s.prepareVolumes(ctx, item.Pod, d)
		s.call(func() { s.finish(ctx, p, item, d, start, err) })
	})
}

// finish binds the pod, unless its volumes could not be had (err).
func (s *Scheduler) finish(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, start time.Time, err error) {
	pod := item.Pod
	if err == nil {
		err = s.cfg.Client.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: d.node},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.undo(pod, d)
		s.fail(ctx, p, item, fmt.Errorf("binding rejected: %w", err), start)
		return
	}
	s.mu.Lock()
	d.volumes.reserve(s.view.reserved, false)
	s.mu.Unlock()
	s.queue.Done(pod.UID)
	s.metrics.bound(p.Name, s.cfg.Clock.Since(start), s.cfg.Clock.Since(item.Since))
	s.events[p.Name].scheduled(pod, d.node)
}

// undo takes back what decide assumed. Another pod may fit now.
func (s *Scheduler) undo(pod *v1.Pod, d decision) {
	s.mu.Lock()
	d.volumes.reserve(s.view.reserved, false)
	s.view.Forget(pod.UID)
	s.mu.Unlock()
	s.queue.Happened(scheduling.PodRemoved)
}

// fail puts a pod back after an error; a pod that is gone just leaves the queue.
func (s *Scheduler) fail(ctx context.Context, p *profile.Profile, item *queue.Item, err error, start time.Time) {
	pod := item.Pod
	switch {
	case apierrors.IsNotFound(err):
		s.queue.Delete(pod.UID)
		return
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return // the next scheduler starts from what the API shows
	}
	s.metrics.attempt(resultError, p.Name, s.cfg.Clock.Since(start))
	s.cfg.Log.Warn("pod not scheduled", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	s.queue.Retry(item)
	s.call(func() {
		s.report(ctx, p, pod, verdictOf(reasonSchedulerError, err.Error(), pod.Status.NominatedNodeName))
	})
}
