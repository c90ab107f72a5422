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

// reportedState holds the data from which the pod's status was last computed.
type reportedState struct {
	mu           sync.Mutex
	look         observation
	ending, over bool
	waiting      map[string]v1.ContainerStateWaiting
	running      time.Time // when the pod was first reported as running; zero before, or if the pod is not traced
}

// setWaiting sets the reason why a container is waiting in the pod's status. The zero value of why
// removes the reason.
func (w *worker) setWaiting(container string, why v1.ContainerStateWaiting) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	if why == (v1.ContainerStateWaiting{}) {
		delete(w.shown.waiting, container)
		return
	}
	w.shown.waiting[container] = why
}

// noteWaiting replaces the reasons of containers that wait for a back-off delay by those in plan.
// It records an event for each container whose back-off delay begins.
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

// report computes the pod's status and queues it for writing to the API. ending reports whether the
// pod is being ended, and over whether all its containers have ended after that.
func (w *worker) report(l observation, ending, over bool) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	w.shown.look, w.shown.ending, w.shown.over = l, ending, over
	w.show()
}

// probed computes the pod's status with new results of probes. It works even while the worker is
// busy.
func (w *worker) probed() {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	if w.shown.look.pod != nil {
		w.show()
	}
}

// resume restores the probe results of the pod's containers from a status that an earlier kubelet
// process wrote to the API, and updates the pod's status.
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

// show computes the pod's status and queues it for writing to the API. The caller holds w.shown.mu.
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
		if !ok { // this process has not started the container's probes, for example because the pod was already ending
			known = w.probeResults(&base.Status, id)
		}
		return known.Started, known.Ready
	}
	now := status.Compute(status.Input{
		Pod: base, Seen: l.seen, Now: w.cfg.Clock.Now(), Waiting: w.shown.waiting, Probed: probed, Message: w.message,
		HostIPs: w.cfg.HostIPs, Ending: w.shown.ending, Ended: w.shown.over,
		Verdict: l.verdict, Resize: l.resize,
		RuntimeName: w.cfg.RuntimeName, RecursiveReadOnly: w.cfg.RuntimeState.RecursiveReadOnly(handler),
		Devices: func(c *v1.Container) []v1.ResourceStatus { return w.cfg.Devices.Health(base, c) },
	})
	w.cfg.Status.Set(l.pod, now)
	w.trace(l.pod, &now)
	if now.Phase == v1.PodRunning {
		w.started()
	}
}

// base returns the pod with its newest status, which the kubelet may not have written to the API
// yet.
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

// probeResults returns the probe results that a status contains for a running container.
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

// containerID returns the ID of a container in the form used in the pod's status.
func (w *worker) containerID(id string) string { return w.cfg.RuntimeName + "://" + id }

// foreign merges the conditions of a pod in the API with the kubelet's own. If both have a
// condition of the same type, the kubelet's one is used, unless another client sets this type.
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

// kubelets reports whether the kubelet sets this type of pod condition.
func kubelets(t v1.PodConditionType) bool {
	switch t {
	case v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled, v1.PodReadyToStartContainers,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	}
	return false
}
