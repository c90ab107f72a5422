// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/prober"
)

// kills records which of a pod's containers are being stopped, or could not be stopped yet. A stop
// that has begun continues even if its reason no longer applies. Further requests to stop the same
// container wait for the stop in progress, so that the preStop handler is called only once.
type kills struct {
	mu   sync.Mutex
	runs map[string]*kill // by container ID
}

// kill records how far the stop of one container has got. It may need several attempts.
type kill struct {
	hooked   bool      // the preStop handler was called
	reported bool      // the event Killing was recorded
	failures int       // number of failed attempts
	next     time.Time // after a failed attempt, the time of the next one
	now      *attempt  // the attempt in progress, or the last attempt if none is in progress
	// over is a channel that is closed when the container has stopped.
	over chan struct{}
}

// attempt is one attempt to stop a container.
type attempt struct {
	deadline time.Time
	wait     clock.Timer // when it fires, the preStop handler and the wait for other containers end; then nil
	cancel   context.CancelFunc
	done     chan struct{} // closed when the attempt has ended; err is set if it has failed
	err      error
}

// running reports whether the attempt to stop the container is still in progress.
func (a *attempt) running() bool {
	if a == nil {
		return false
	}
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// killOf returns the record of the stop of the container with this ID, and creates the record if
// necessary.
func (k *kills) killOf(id string) *kill {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs[id] == nil {
		k.runs[id] = &kill{over: make(chan struct{})}
	}
	return k.runs[id]
}

// forget drops the records of containers that have exited or no longer exist, unless an attempt to
// stop them is in progress.
func (k *kills) forget(seen *cri.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, one := range k.runs {
		alive := false
		for i := range seen.Containers {
			c := &seen.Containers[i]
			alive = alive || c.ID == id && c.State != cri.Exited
		}
		if !alive && !one.now.running() {
			delete(k.runs, id)
		}
	}
}

// killSoon begins to stop a container without waiting until it has stopped. If the last attempt
// failed and it is too early for another one, killSoon returns the time at which to try again.
func (w *worker) killSoon(pod *v1.Pod, run *cri.Container, spec *v1.Container, grace time.Duration,
	message string) time.Time {
	k := w.kills.killOf(run.ID)
	w.kills.mu.Lock()
	defer w.kills.mu.Unlock()
	switch {
	case k.now.running():
		return time.Time{}
	case w.cfg.Clock.Now().Before(k.next):
		return k.next
	}
	w.begin(k, order{pod: pod, run: run, spec: spec, grace: grace, message: message})
	return time.Time{}
}

// order describes which container to stop and how.
type order struct {
	pod     *v1.Pod
	run     *cri.Container
	spec    *v1.Container // spec of the container; nil if the pod's spec does not have the container
	grace   time.Duration
	message string // message of the event Killing
	// after holds a channel for each container that must stop before this container is signalled. A
	// channel is closed when its container has stopped. The preStop handler of this container runs
	// without waiting for these containers.
	after []<-chan struct{}
}

// kill runs the container's preStop handler and stops the container, both within the grace period.
// If the container is already being stopped, kill waits for that stop; if the grace period of this
// order ends earlier, kill first shortens that stop.
func (w *worker) kill(ctx context.Context, o order) error {
	k := w.kills.killOf(o.run.ID)
	w.kills.mu.Lock()
	a := k.now
	deadline := w.cfg.Clock.Now().Add(o.grace)
	if a.running() && deadline.Before(a.deadline.Add(-time.Second)) {
		if a.deadline = deadline; a.wait != nil {
			a.wait.Reset(o.grace)
		} else {
			w.kills.mu.Unlock()
			a.cancel()
			<-a.done
			w.kills.mu.Lock()
		}
	}
	if a = k.now; !a.running() {
		a = w.begin(k, o)
	}
	w.kills.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin starts an attempt to stop a container. The caller holds the lock.
func (w *worker) begin(k *kill, o order) *attempt {
	if !k.reported {
		k.reported = true
		w.cfg.Event(o.pod, o.run.Name, v1.EventTypeNormal, "Killing", o.message)
	}
	hook := !k.hooked && o.grace > 0 && o.spec != nil && o.spec.Lifecycle != nil &&
		o.spec.Lifecycle.PreStop != nil && o.run.State == cri.Running
	k.hooked = k.hooked || hook
	ctx, cancel := context.WithCancel(w.ctx)
	a := &attempt{deadline: w.cfg.Clock.Now().Add(o.grace), cancel: cancel, done: make(chan struct{})}
	k.now = a
	waiting, end := context.WithCancel(ctx)
	if hook || len(o.after) > 0 {
		a.wait = w.cfg.Clock.AfterFunc(o.grace, end)
	}
	w.wg.Go(func() {
		defer w.wakeUp()
		defer cancel()
		defer end()
		if hook {
			w.preStop(waiting, o.pod, o.run, o.spec)
		}
		await(waiting, o.after)
		left := w.waited(a)
		err := ctx.Err()
		if err == nil {
			err = w.cfg.Runtime.StopContainer(ctx, o.run.ID, left)
		}
		w.attempted(ctx, k, a, o, err)
	})
	return a
}

// attempted records the result of an attempt to stop a container.
func (w *worker) attempted(ctx context.Context, k *kill, a *attempt, o order, err error) {
	w.kills.mu.Lock()
	defer w.kills.mu.Unlock()
	defer close(a.done)
	if err == nil {
		k.failures, k.next = 0, time.Time{}
		k.end()
		return
	}
	a.err = fmt.Errorf("stop container %s: %w", o.run.Name, err)
	if ctx.Err() == nil {
		w.cfg.Log.Warn("Failed to stop a container", "pod", cri.Describe(o.pod), "container", o.run.Name, "err", err)
		k.next = w.cfg.Clock.Now().Add(delay(k.failures))
		k.failures++
	}
}

// end records that the container has stopped. The caller holds the lock.
func (k *kill) end() {
	select {
	case <-k.over:
	default:
		close(k.over)
	}
}

// await waits until all the channels are closed or ctx ends.
func await(ctx context.Context, channels []<-chan struct{}) {
	for _, c := range channels {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}

// preStop runs the container's preStop handler. It cancels the handler when ctx ends.
func (w *worker) preStop(ctx context.Context, pod *v1.Pod, run *cri.Container, spec *v1.Container) {
	target := prober.Target{Pod: pod, Container: spec, ID: run.ID}
	if spec.Lifecycle.PreStop.HTTPGet != nil {
		// Read the pod's address from the runtime: the status lacks it for a static pod and for a
		// pod that is no longer in the API.
		if seen, err := w.cfg.Runtime.Pod(ctx, w.uid); err == nil && seen.Sandbox() != nil {
			target.IP = w.address(pod, seen.Sandbox())
		}
	}
	err := w.cfg.Handler.Lifecycle(ctx, target, spec.Lifecycle.PreStop)
	switch {
	case errors.Is(err, prober.ErrSleepCut):
		w.cfg.Metrics.SleepCut()
	case err != nil && w.ctx.Err() == nil:
		w.cfg.Event(pod, run.Name, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// waited records that the container is signalled now. It returns how long the container may take to
// exit after the signal.
func (w *worker) waited(a *attempt) time.Duration {
	w.kills.mu.Lock()
	defer w.kills.mu.Unlock()
	if a.wait != nil {
		a.wait.Stop()
		a.wait = nil
	}
	return max(a.deadline.Sub(w.cfg.Clock.Now()), minGrace)
}
