// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

const (
	// minGrace is left to a container after a preStop handler took all there was.
	minGrace = 2 * time.Second
	// defaultGrace holds for pods of which nothing more is known.
	defaultGrace = 30 * time.Second
)

// stopping is the end of a pod under way.
type stopping struct {
	deadline time.Time
	cancel   context.CancelFunc
	done     chan struct{} // closed when everything has stopped, or failed to (err)
	err      error
}

// end brings a pod to its end: its containers, then what they held, then its
// place in the API, then what the runtime remembers. It returns when to look
// again, and whether nothing is left.
func (w *worker) end(ctx context.Context, l look) (again time.Time, gone bool) {
	span := trace.SpanFromContext(ctx)
	span.SetName(spanTerminated)
	if w.ending.IsZero() {
		w.ending = w.cfg.Clock.Now()
	}
	if l.seen.Active() || w.stopping != nil {
		span.SetName(spanTerminating)
		if again, stopped := w.stop(ctx, l); !stopped {
			w.report(l, true, false)
			return again, false
		}
		seen, err := w.cfg.Runtime.Pod(ctx, w.uid)
		if err != nil {
			return w.failed(ctx, "the runtime does not answer", err), false
		}
		if l.seen = seen; seen.Active() {
			w.poke() // something was started at the last moment
			return time.Time{}, false
		}
		w.cfg.Metrics.Worked(metrics.Kill, w.cfg.Clock.Since(w.ending))
	}
	w.probes.StopPod(w.uid)
	if err := w.release(ctx, l.pod); err != nil {
		w.report(l, true, false)
		return w.failed(ctx, "what the pod held is not given back", err), false
	}
	w.report(l, true, true)
	if !l.removed {
		if l.pod.DeletionTimestamp != nil {
			w.cfg.Status.Delete(l.pod)
		}
		return time.Time{}, false
	}
	if err := w.erase(ctx, l); err != nil {
		return w.failed(ctx, "what is left of the pod is not removed", err), false
	}
	return time.Time{}, true
}

// stop sees to it that the pod is being stopped in the time it has, and tells
// whether it has.
func (w *worker) stop(ctx context.Context, l look) (again time.Time, stopped bool) {
	grace := graceFor(l)
	deadline := w.cfg.Clock.Now().Add(grace)
	if w.stopping == nil {
		w.stopping = w.beginStop(ctx, l, grace, deadline)
		return time.Time{}, false
	}
	select {
	case <-w.stopping.done:
		err := w.stopping.err
		w.stopping = nil
		if err != nil {
			return w.failed(ctx, "the pod does not stop", err), false
		}
		return time.Time{}, true
	default:
	}
	if deadline.Before(w.stopping.deadline.Add(-time.Second)) {
		// Less time than was given at first.
		w.stopping.cancel()
		<-w.stopping.done
		w.stopping = w.beginStop(ctx, l, grace, deadline)
	}
	return time.Time{}, false
}

// graceFor is how long a pod may take to end.
func graceFor(l look) time.Duration {
	seconds := int64(defaultGrace / time.Second)
	switch {
	case l.pod.DeletionGracePeriodSeconds != nil:
		seconds = *l.pod.DeletionGracePeriodSeconds
	case l.grace != nil:
		seconds = *l.grace
	case l.pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *l.pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(max(seconds, 1)) * time.Second
}

func (w *worker) beginStop(ctx context.Context, l look, grace time.Duration, deadline time.Time) *stopping {
	ctx, cancel := context.WithCancel(ctx)
	s := &stopping{deadline: deadline, cancel: cancel, done: make(chan struct{})}
	w.wg.Go(func() {
		defer w.poke()
		defer close(s.done)
		defer cancel()
		s.err = w.stopAll(ctx, l, grace)
	})
	return s
}

// stopAll stops a pod's containers, sidecars after the others and the last one
// first, and then its sandboxes.
func (w *worker) stopAll(ctx context.Context, l look, grace time.Duration) error {
	begun := w.cfg.Clock.Now()
	var sidecars []*cri.Container
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	kill := func(run *cri.Container, grace time.Duration) {
		if err := w.kill(ctx, l.pod, run, specOf(l.pod, run.Name), grace, fmt.Sprintf("Stopping container %s", run.Name)); err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
	}
	for i := range l.seen.Containers {
		run := &l.seen.Containers[i]
		if run.State != cri.Running && run.State != cri.Unknown {
			continue
		}
		if spec := specOf(l.pod, run.Name); spec != nil && cri.Sidecar(spec) {
			sidecars = append(sidecars, run)
			continue
		}
		wg.Go(func() { kill(run, grace) })
	}
	wg.Wait()
	slices.SortStableFunc(sidecars, func(a, b *cri.Container) int { return initIndex(l.pod, b.Name) - initIndex(l.pod, a.Name) })
	for _, run := range sidecars {
		kill(run, max(grace-w.cfg.Clock.Since(begun), time.Second))
	}
	if err := errors.Join(errs...); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, b := range l.seen.Sandboxes {
		if err := w.cfg.Runtime.StopSandbox(ctx, b.ID); err != nil {
			return fmt.Errorf("stop sandbox: %w", err)
		}
	}
	return nil
}

func initIndex(pod *v1.Pod, name string) int {
	return slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

// graceOne is how long a container of a pod that goes on may take to end.
func graceOne(pod *v1.Pod, own *int64) time.Duration {
	grace := int64(defaultGrace / time.Second)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if own != nil {
		if grace = *own; grace == 0 {
			return 0
		}
	}
	return time.Duration(max(grace, 1)) * time.Second
}

// release gives back what the pod's containers held.
func (w *worker) release(ctx context.Context, pod *v1.Pod) error {
	if w.released {
		return nil
	}
	begun := w.cfg.Clock.Now()
	if err := w.cfg.Volumes.Teardown(ctx, w.uid); err != nil {
		return err
	}
	if err := w.cfg.Cgroups.Remove(ctx, w.uid); err != nil {
		return err
	}
	w.cfg.Objects.UnregisterPod(pod)
	w.cfg.Images.Forget(w.uid)
	if err := w.cfg.Released(ctx, w.uid); err != nil {
		return err
	}
	w.released = true
	w.cfg.Metrics.Worked(metrics.Terminated, w.cfg.Clock.Since(begun))
	return nil
}

// erase removes what the runtime and the disk remember of a pod that the API does not have any more.
func (w *worker) erase(ctx context.Context, l look) error {
	for _, c := range l.seen.Containers {
		if err := w.cfg.Runtime.RemoveContainer(ctx, c.ID); err != nil {
			return fmt.Errorf("remove container: %w", err)
		}
	}
	for _, b := range l.seen.Sandboxes {
		if err := w.cfg.Runtime.RemoveSandbox(ctx, b.ID); err != nil {
			return fmt.Errorf("remove sandbox: %w", err)
		}
	}
	if err := os.RemoveAll(cri.PodLogDir(w.cfg.LogRoot, l.pod)); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	return removeFiles(w.cfg.RootDir, w.uid)
}
