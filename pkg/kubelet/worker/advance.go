// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/images"
	"keelson.dev/keelson/pkg/kubelet/logs"
	"keelson.dev/keelson/pkg/kubelet/restart"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// advance carries out a plan. It returns the time at which the worker must sync the pod again,
// unless something wakes the worker earlier.
func (w *worker) advance(parent context.Context, l observation, plan Plan) time.Time {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	w.in.Lock()
	w.in.cancel = cancel
	if w.in.removed || w.in.pod.DeletionTimestamp != nil || w.in.verdict != nil {
		cancel()
	}
	w.in.Unlock()

	w.noteWaiting(l.pod, plan)
	stops := w.stopSome(l.pod, plan.Stop)
	starts := plan.Sandbox || len(plan.Start) > 0
	idle := !starts && len(plan.Update) == 0
	w.cfg.Volumes.Update(l.pod, !starts) // volumes of a pod whose containers start are prepared later, by startSome
	if l.pod.Status.StartTime == nil || idle {
		w.report(l, false, false)
	}
	if idle {
		w.prune(ctx, l.seen)
		w.failures = 0
		return earliest(plan.Retry, stops, w.deadline(l.pod))
	}
	retry, err := w.act(ctx, l, plan)
	seen, lookErr := w.cfg.Runtime.Pod(parent, w.uid)
	if lookErr != nil {
		return w.failed(ctx, "Failed to read the pod from the runtime", lookErr)
	}
	l.seen = seen
	w.probe(l)
	w.report(l, false, false)
	if err != nil && ctx.Err() == nil {
		return earliest(retry, stops, w.failed(ctx, "Failed to sync the pod", err))
	}
	if retry.IsZero() {
		w.wakeUp() // sync again immediately, because more work may follow
	}
	return earliest(retry, plan.Retry, stops, w.deadline(l.pod))
}

// stopSome begins to stop containers without waiting until they have stopped. If earlier attempts
// failed, it returns the time at which to retry.
func (w *worker) stopSome(pod *v1.Pod, list []Stop) time.Time {
	var again time.Time
	for _, s := range list {
		if s.Again {
			w.again[s.Spec.Name] = true
		}
		again = earliest(again, w.killSoon(pod, s.Run, s.Spec, graceOne(pod, s.Grace), s.Message))
	}
	return again
}

// deadline returns the time at which the pod's activeDeadlineSeconds ends, or the zero time if the
// pod has no deadline.
func (w *worker) deadline(pod *v1.Pod) time.Time {
	if pod.Spec.ActiveDeadlineSeconds == nil || pod.Status.StartTime == nil {
		return time.Time{}
	}
	return pod.Status.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// probe starts the probes of containers that run, and stops the probes of containers that do not.
func (w *worker) probe(l observation) {
	box := l.seen.Sandbox()
	for i := range l.seen.Containers {
		run := &l.seen.Containers[i]
		spec := specOf(l.pod, run.Name)
		if run.State != cri.Running || spec == nil || box == nil {
			w.probes.Stop(run.ID)
			continue
		}
		if _, ok := w.probes.Result(run.ID); !ok {
			w.probes.Start(l.pod, spec, run.ID, w.address(l.pod, box), run.StartedAt,
				w.probeResults(&w.base(l.pod).Status, run.ID))
		}
	}
}

func (w *worker) address(pod *v1.Pod, box *cri.Sandbox) string {
	ips := box.IPs
	if pod.Spec.HostNetwork {
		ips = w.cfg.HostIPs
	}
	if len(ips) == 0 {
		return ""
	}
	return ips[0]
}

// specOf returns the spec of the pod's container with this name, or nil. It searches init, main and
// ephemeral containers.
func specOf(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return &c
		}
	}
	return nil
}

// act resizes and starts containers as planned. If an image could not be pulled, it returns the
// time at which to try again. Other failures are returned as the error.
func (w *worker) act(ctx context.Context, l observation, plan Plan) (time.Time, error) {
	var updated error
	if len(plan.Update) > 0 {
		w.report(l, false, false) // show in the pod's status that the resize is in progress
		updated = w.update(ctx, l, plan.Update)
	}
	if !plan.Sandbox && len(plan.Start) == 0 {
		return time.Time{}, updated
	}
	retry, err := w.startSome(ctx, l, plan)
	return retry, errors.Join(updated, err)
}

// startSome starts the containers that are to start according to the plan. It first creates a new
// sandbox if the plan requires one.
func (w *worker) startSome(ctx context.Context, l observation, plan Plan) (time.Time, error) {
	mounts, err := w.prepare(ctx, l)
	if err != nil {
		return time.Time{}, err
	}
	handler, err := w.cfg.Environment.RuntimeHandler(deref(l.pod.Spec.RuntimeClassName))
	if err != nil {
		w.event(l.pod, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
		return time.Time{}, err
	}
	if plan.Sandbox {
		if l.seen, err = w.replaceSandbox(ctx, l, plan.Attempt, handler); err != nil {
			return time.Time{}, err
		}
	}
	box := l.seen.Sandbox()
	if box == nil {
		return time.Time{}, errors.New("the sandbox does not exist any more")
	}
	s := starter{worker: w, pod: l.pod, seen: l.seen, box: box, handler: handler, mounts: mounts,
		epoch: plan.Epoch, look: l}
	if s.config, err = w.sandboxConfig(l.pod, box.Attempt, handler); err != nil {
		return time.Time{}, err
	}
	retry, err := s.startAll(ctx, plan.Start)
	if plan.Sandbox && err != nil && ctx.Err() == nil {
		w.cfg.Metrics.SandboxWithoutContainers(l.pod)
	}
	return retry, err
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// prepare prepares everything that the pod's sandbox needs: its cgroup, resource claims and
// volumes.
func (w *worker) prepare(ctx context.Context, l observation) (volume.Mounts, error) {
	ctx, spent := w.enter(ctx, PhaseVolumes)
	defer spent()
	pod := l.pod
	if err := w.fit(l); err != nil {
		w.event(pod, "FailedCreatePodContainer", fmt.Sprintf("unable to ensure pod container exists: %v", err))
		return volume.Mounts{}, err
	}
	if err := w.cfg.Devices.Prepare(ctx, pod); err != nil {
		w.event(pod, "FailedPrepareDynamicResources", fmt.Sprintf("Failed to prepare dynamic resources: %v", err))
		return volume.Mounts{}, err
	}
	mounts, err := w.cfg.Volumes.Prepare(ctx, pod)
	if limit := (*csi.LimitError)(nil); errors.As(err, &limit) {
		w.reject(pod, "VolumeAttachmentLimitExceeded", limit.Error())
		return mounts, err
	}
	if err != nil && ctx.Err() == nil {
		reason := volume.ReasonFailedMount
		var ve *volume.Error
		if errors.As(err, &ve) {
			reason = ve.Reason
		}
		w.event(pod, reason, err.Error())
	}
	return mounts, err
}

// event records a warning event on the pod.
func (w *worker) event(pod *v1.Pod, reason, message string) {
	w.cfg.Event(pod, "", v1.EventTypeWarning, reason, message)
}

// prune removes what the pod no longer needs from the runtime: of each container all runs but the
// newest two, and older sandboxes that are neither ready nor used by a container. A run is one CRI
// container.
func (w *worker) prune(ctx context.Context, seen *cri.Pod) {
	runs, used := map[string]int{}, map[string]bool{}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if runs[c.Name]++; runs[c.Name] > 2 && c.State != cri.Running {
			w.drop(ctx, "container", c.ID, w.cfg.Runtime.RemoveContainer)
			w.drop(ctx, "log", c.LogPath, func(_ context.Context, path string) error { return logs.Remove(path) })
			continue
		}
		used[c.SandboxID] = true
	}
	for i := range seen.Sandboxes {
		if b := &seen.Sandboxes[i]; i > 0 && !b.Ready && !used[b.ID] {
			w.drop(ctx, "sandbox", b.ID, w.cfg.Runtime.RemoveSandbox)
		}
	}
}

// drop removes a container, log or sandbox that the pod no longer needs. If the removal fails, the
// next sync tries again.
func (w *worker) drop(ctx context.Context, what, id string, remove func(context.Context, string) error) {
	if err := remove(ctx, id); err != nil {
		w.cfg.Log.Debug("Failed to remove an unused container, pod sandbox or log",
			"what", what, "id", id, "pod", w.uid, "err", err)
	}
}

// startAll starts containers in order. It continues with the next container if one fails to start.
func (s *starter) startAll(ctx context.Context, list []*v1.Container) (time.Time, error) {
	var retry time.Time
	var errs []error
	for i, c := range list {
		if ctx.Err() != nil {
			break
		}
		if i > 0 && !s.showStarted(ctx) { // update the status now, because pulling the next image may take long
			break
		}
		err := s.start(ctx, c)
		var missing *images.Error
		switch {
		case err == nil:
			s.setWaiting(c.Name, v1.ContainerStateWaiting{})
			delete(s.again, c.Name)
		case errors.As(err, &missing):
			s.setWaiting(c.Name, v1.ContainerStateWaiting{Reason: missing.Reason, Message: missing.Message})
			retry = earliest(retry, missing.Retry)
		default:
			errs = append(errs, err)
		}
	}
	return retry, errors.Join(errs...)
}

// showStarted starts the probes of the containers started so far and reports the pod's status. It
// returns false if the remaining containers must not start, because a container has exited in the
// meantime and requires a restart of all containers.
func (s *starter) showStarted(ctx context.Context) bool {
	seen, err := s.cfg.Runtime.Pod(ctx, s.uid)
	if err != nil {
		return true // continue; the next call of showStarted or the next sync updates the status
	}
	l := s.look
	l.seen = seen
	s.probe(l)
	s.report(l, false, false)
	return restart.Epoch(s.pod, seen) == s.epoch
}

// starter starts containers of a pod in a sandbox.
type starter struct {
	*worker
	pod     *v1.Pod
	seen    *cri.Pod
	box     *cri.Sandbox
	config  *runtimeapi.PodSandboxConfig
	handler string
	mounts  volume.Mounts
	epoch   int64
	look    observation
}
