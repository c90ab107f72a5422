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

// kills are the stops of a pod's containers. A stop continues even if its reason disappears;
// further requests to stop the same container wait for it, so that its preStop handler is called
// once.
type kills struct {
	mu   sync.Mutex
	runs map[string]*kill // kills by container ID
}

// kill is the stop of one run of a container.
type kill struct {
	hooked   bool      // the preStop handler has been called
	reported bool      // the Killing event has been recorded
	failures int       // number of stops that failed in a row
	next     time.Time // when to retry after a failure
	now      *attempt  // the current attempt, or else the last one
	// over is closed when the container has been stopped.
	over chan struct{}
}

// attempt is one try to stop a container.
type attempt struct {
	deadline time.Time
	wait     clock.Timer // when it fires, the preStop handler and the wait for other containers end; nil afterwards
	cancel   context.CancelFunc
	done     chan struct{} // closed when the attempt has succeeded or failed (then err is set)
	err      error
}

// running reports whether the attempt is still in progress.
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

// killOf returns the kill of a run.
func (k *kills) killOf(id string) *kill {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs[id] == nil {
		k.runs[id] = &kill{over: make(chan struct{})}
	}
	return k.runs[id]
}

// forget drops the stops of runs that have ended.
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

// killSoon begins to stop a container and does not wait for it. If the last attempt failed a short
// time ago, it returns the time at which to retry.
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

// order says how to stop a container.
type order struct {
	pod     *v1.Pod
	run     *cri.Container
	spec    *v1.Container // spec of the container; nil if it is not known
	grace   time.Duration
	message string // message of the Killing event
	// after has a channel for each container that must stop before this one is signalled. The
	// channel is closed when that container has stopped. The preStop handler does not wait for
	// them.
	after []<-chan struct{}
}

// kill stops a container within its grace period, after its preStop handler. If a stop is in
// progress, kill waits for that stop and, if its deadline is later, shortens it.
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

// begin begins to stop a container. The caller holds the lock.
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

// attempted records the result of an attempt.
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

// await waits until all channels are closed, or ctx ends.
func await(ctx context.Context, channels []<-chan struct{}) {
	for _, c := range channels {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}

// preStop runs the container's handler until ctx ends.
func (w *worker) preStop(ctx context.Context, pod *v1.Pod, run *cri.Container, spec *v1.Container) {
	target := prober.Target{Pod: pod, Container: spec, ID: run.ID}
	if spec.Lifecycle.PreStop.HTTPGet != nil {
		// Ask the runtime for the address, because the status of a static pod, or of a pod that the
		// API no longer has, contains none.
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

// waited ends the wait before the signal. It returns how long the container may take after the
// signal.
func (w *worker) waited(a *attempt) time.Duration {
	w.kills.mu.Lock()
	defer w.kills.mu.Unlock()
	if a.wait != nil {
		a.wait.Stop()
		a.wait = nil
	}
	return max(a.deadline.Sub(w.cfg.Clock.Now()), minGrace)
}
