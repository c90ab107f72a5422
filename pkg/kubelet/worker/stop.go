// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

const (
	// minGrace is the minimum time between the signal to a container and its kill, as in
	// Kubernetes.
	minGrace = 2 * time.Second
	// shortestGrace is the minimum grace period of a pod.
	shortestGrace = time.Second
	// defaultGrace is the grace period of pods whose spec does not set one.
	defaultGrace = 30 * time.Second
)

// stopping is the stop of all containers and sandboxes of a pod.
type stopping struct {
	deadline time.Time
	cancel   context.CancelFunc
	done     chan struct{} // closed when everything has stopped or the stop has failed; err is set if it has failed
	err      error
}

// end ends a pod. It stops the pod's containers, releases their resources and deletes the pod from
// the API. Once the API no longer has the pod, it removes the containers and sandboxes from the
// runtime. It returns the time at which to sync again, and whether the node no longer holds
// anything of the pod.
func (w *worker) end(ctx context.Context, l observation) (again time.Time, gone bool) {
	span := trace.SpanFromContext(ctx)
	span.SetName(spanTerminated)
	if w.ending.IsZero() {
		w.ending = w.cfg.Clock.Now()
	}
	w.probes.StopChecks(w.uid)
	if l.seen.Active() || w.stopping != nil {
		span.SetName(spanTerminating)
		if again, stopped := w.stop(ctx, l); !stopped {
			w.report(l, true, false)
			return again, false
		}
		seen, err := w.cfg.Runtime.Pod(ctx, w.uid)
		if err != nil {
			return w.failed(ctx, "Failed to read the pod from the runtime", err), false
		}
		if l.seen = seen; seen.Active() {
			w.wakeUp() // a container has started in the meantime, so stop the pod again
			return time.Time{}, false
		}
		w.cfg.Metrics.OperationDone(metrics.Kill, w.cfg.Clock.Since(w.ending))
	}
	w.probes.StopPod(w.uid)
	if err := w.release(ctx, l.pod); err != nil {
		w.report(l, true, false)
		return w.failed(ctx, "Failed to release the pod's resources", err), false
	}
	w.report(l, true, true)
	if !l.removed {
		if l.pod.DeletionTimestamp != nil {
			w.cfg.Status.Delete(l.pod)
		}
		return time.Time{}, false
	}
	if err := w.erase(ctx, l); err != nil {
		return w.failed(ctx, "Failed to remove the pod's remains", err), false
	}
	return time.Time{}, true
}

// stop begins to stop the pod. If the pod is already being stopped, stop shortens the grace period
// if necessary. It reports whether the pod has stopped.
func (w *worker) stop(ctx context.Context, l observation) (again time.Time, stopped bool) {
	grace := graceFor(l, w.grace)
	w.grace = grace
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
			return w.failed(ctx, "Failed to stop the pod", err), false
		}
		return time.Time{}, true
	default:
	}
	if deadline.Before(w.stopping.deadline.Add(-time.Second)) {
		// The grace period has become shorter, so start again with the new one.
		w.stopping.cancel()
		<-w.stopping.done
		w.stopping = w.beginStop(ctx, l, grace, deadline)
	}
	return time.Time{}, false
}

// graceFor returns how long a pod may take to end: the shortest of the grace periods set by its
// deletion, by the kubelet's eviction and by an earlier call (the argument before), if they are
// set. If none of them is set, the grace period in the pod's spec applies. Kubernetes does the
// same.
func graceFor(l observation, before time.Duration) time.Duration {
	grace := before
	for _, seconds := range []*int64{l.pod.DeletionGracePeriodSeconds, l.grace} {
		if seconds == nil {
			continue
		}
		if given := max(time.Duration(*seconds)*time.Second, shortestGrace); grace == 0 || given < grace {
			grace = given
		}
	}
	if grace != 0 {
		return grace
	}
	if own := l.pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return max(time.Duration(*own)*time.Second, shortestGrace)
	}
	return defaultGrace
}

func (w *worker) beginStop(ctx context.Context, l observation, grace time.Duration, deadline time.Time) *stopping {
	ctx, cancel := context.WithCancel(ctx)
	s := &stopping{deadline: deadline, cancel: cancel, done: make(chan struct{})}
	w.wg.Go(func() {
		defer w.wakeUp()
		defer close(s.done)
		defer cancel()
		s.err = w.stopAll(ctx, l, grace)
	})
	return s
}

// stopAll stops the pod's containers and then its sandboxes.
func (w *worker) stopAll(ctx context.Context, l observation, grace time.Duration) error {
	if err := w.stopContainers(ctx, l, grace); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, b := range l.seen.Sandboxes {
		if err := w.cfg.Runtime.StopSandbox(ctx, b.ID); err != nil {
			return fmt.Errorf("stop sandbox: %w", err)
		}
	}
	return nil
}

// stopContainers stops all containers of a pod. All preStop handlers start immediately. A sidecar
// is signalled when the main containers and the sidecars that started after it have ended, or at
// the end of the grace period.
func (w *worker) stopContainers(ctx context.Context, l observation, grace time.Duration) error {
	// The first error cancels ctx, so that the caller can retry without waiting for the other
	// containers.
	g, ctx := errgroup.WithContext(ctx)
	for _, o := range w.stopOrders(l, grace) {
		g.Go(func() error { return w.kill(ctx, o) })
	}
	return g.Wait()
}

// stopOrders returns an order for each container to stop. The orders of sidecars say which
// containers must stop first.
func (w *worker) stopOrders(l observation, grace time.Duration) []order {
	var main []<-chan struct{}
	var sidecars, out []order
	for i := range l.seen.Containers {
		run := &l.seen.Containers[i]
		if run.State != cri.Running && run.State != cri.Unknown {
			continue
		}
		o := order{pod: l.pod, run: run, spec: specOf(l.pod, run.Name), grace: grace,
			message: "Stopping container " + run.Name}
		if o.spec != nil && cri.Sidecar(o.spec) {
			sidecars = append(sidecars, o)
			continue
		}
		out = append(out, o)
		if slices.ContainsFunc(l.pod.Spec.Containers, func(c v1.Container) bool { return c.Name == run.Name }) {
			main = append(main, w.kills.killOf(run.ID).over)
		}
	}
	slices.SortStableFunc(sidecars,
		func(a, b order) int { return initIndex(l.pod, b.run.Name) - initIndex(l.pod, a.run.Name) })
	for _, o := range sidecars {
		o.after = slices.Clone(main)
		out = append(out, o)
		main = append(main, w.kills.killOf(o.run.ID).over)
	}
	return out
}

func initIndex(pod *v1.Pod, name string) int {
	return slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}

// graceOne returns the grace period of a container that is stopped while its pod keeps running. The
// argument own is the grace period of the failed probe in seconds, or nil. A result of zero means
// that the preStop handler is skipped.
func graceOne(pod *v1.Pod, own *int64) time.Duration {
	for _, seconds := range []*int64{pod.DeletionGracePeriodSeconds, own, pod.Spec.TerminationGracePeriodSeconds} {
		if seconds != nil {
			return time.Duration(max(*seconds, 0)) * time.Second
		}
	}
	return defaultGrace
}

// release releases the resources of a pod whose containers have all stopped.
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
	if err := w.cfg.Release.Release(ctx, pod); err != nil {
		return err
	}
	w.released = true
	w.cfg.Metrics.OperationDone(metrics.Terminated, w.cfg.Clock.Since(begun))
	return nil
}

// erase removes the containers, sandboxes, logs and other files of a pod that is no longer in the
// API.
func (w *worker) erase(ctx context.Context, l observation) error {
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
