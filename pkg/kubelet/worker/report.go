// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// reportedState is the data from which the pod's status was last computed.
type reportedState struct {
	mu           sync.Mutex
	look         observation
	ending, over bool
	waiting      map[string]v1.ContainerStateWaiting
	running      time.Time // when the pod was first reported as running, if it is traced
}

// setWaiting shows a container as waiting; the zero value shows it as not waiting.
func (w *worker) setWaiting(container string, why v1.ContainerStateWaiting) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	if why == (v1.ContainerStateWaiting{}) {
		delete(w.shown.waiting, container)
		return
	}
	w.shown.waiting[container] = why
}

// noteWaiting updates the reasons why containers wait, and records an event for each new back-off.
func (w *worker) noteWaiting(pod *v1.Pod, plan Plan) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	waiting := w.shown.waiting
	for name, why := range plan.Waiting {
		if waiting[name].Reason != why.Reason {
			w.cfg.Event(pod, name, v1.EventTypeWarning, "BackOff",
				fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, cri.Describe(pod)))
		}
	}
	for name, why := range waiting {
		if why.Reason == reasonCrashLoop {
			delete(waiting, name)
		}
	}
	for name, why := range plan.Waiting {
		waiting[name] = why
	}
}

// report computes the pod's status and queues it for writing.
func (w *worker) report(l observation, ending, over bool) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	w.shown.look, w.shown.ending, w.shown.over = l, ending, over
	w.show()
}

// probed updates the status with the results of probes, even while the worker is busy.
func (w *worker) probed() {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	if w.shown.look.pod != nil {
		w.show()
	}
}

// resume updates the pod's status with the status that an earlier kubelet process wrote to the API.
func (w *worker) resume(s *v1.PodStatus) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	if w.shown.look.pod == nil {
		return
	}
	for _, run := range w.shown.look.seen.Containers {
		w.probes.Restore(run.ID, w.probeResults(s, run.ID))
	}
	w.show()
}

// show computes the status and queues it for writing. The caller holds the lock.
func (w *worker) show() {
	l := w.shown.look
	if l.removed {
		return
	}
	box := l.seen.Sandbox()
	handler := ""
	if box != nil {
		handler = box.RuntimeHandler
	}
	base := w.base(l.pod)
	probed := func(id string) (started, ready bool) {
		known, ok := w.probes.Result(id)
		if !ok { // the container is not probed, because the pod may have been ending when this process started
			known = w.probeResults(&base.Status, id)
		}
		return known.Started, known.Ready
	}
	now := status.Compute(status.Input{
		Pod: base, Seen: l.seen, Now: w.cfg.Clock.Now(), Waiting: w.shown.waiting, Probed: probed, Message: w.message,
		HostIPs: w.cfg.HostIPs, SandboxReady: box != nil && box.Ready, Ending: w.shown.ending,
		Ended: w.shown.over, Verdict: l.verdict, Resize: l.resize,
		RuntimeName: w.cfg.RuntimeName, RecursiveReadOnly: w.cfg.RuntimeState.RecursiveReadOnly(handler),
		Devices: func(c *v1.Container) []v1.ResourceStatus { return w.cfg.Devices.Health(base, c) },
	})
	w.cfg.Status.Set(l.pod, now)
	w.trace(l.pod, &now)
	if now.Phase == v1.PodRunning {
		w.started()
	}
}

// base returns the pod with its newest status, which the API may not have yet.
func (w *worker) base(pod *v1.Pod) *v1.Pod {
	s, ok := w.cfg.Status.Get(w.uid)
	if !ok {
		return pod
	}
	base := pod.DeepCopy()
	s.Conditions = foreign(pod.Status.Conditions, s.Conditions)
	base.Status = s
	return base
}

// probeResults returns the probe results of a running container in a status.
func (w *worker) probeResults(s *v1.PodStatus, id string) prober.Result {
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for i := range list {
			if c := &list[i]; c.State.Running != nil && c.ContainerID == w.containerID(id) {
				return prober.Result{Started: c.Started != nil && *c.Started, Ready: c.Ready}
			}
		}
	}
	return prober.Result{}
}

// containerID returns a container's ID as statuses contain it.
func (w *worker) containerID(id string) string { return w.cfg.RuntimeName + "://" + id }

// foreign returns own, but with the conditions that other clients write replaced by those in api.
func foreign(api, own []v1.PodCondition) []v1.PodCondition {
	out := append([]v1.PodCondition{}, own...)
	for _, c := range api {
		found := false
		for i := range out {
			if out[i].Type == c.Type {
				found = true
				if !kubelets(c.Type) {
					out[i] = c
				}
			}
		}
		if !found {
			out = append(out, c)
		}
	}
	return out
}

// kubelets reports whether the kubelet sets a condition.
func kubelets(t v1.PodConditionType) bool {
	switch t {
	case v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled, v1.PodReadyToStartContainers,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	}
	return false
}
