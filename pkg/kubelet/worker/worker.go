// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/restart"
	"keelson.dev/keelson/pkg/kubelet/status"
)

const (
	// retryFirst and retryMax are the shortest and the longest delay before a retry.
	retryFirst = 500 * time.Millisecond
	retryMax   = 2 * time.Minute
)

// worker runs one pod, in one goroutine.
type worker struct {
	*Pool
	uid  types.UID
	wake chan struct{} // has a token if the worker must sync the pod

	in struct { // set by other goroutines; guarded by the mutex
		sync.Mutex
		pod     *v1.Pod
		seen    time.Time // when the kubelet first saw the pod; zero once the pod runs, or if an earlier process started it
		since   time.Time // when the kubelet first saw the pod; zero if the trace is complete or an earlier process began it
		removed bool
		bare    bool // the pod exists in the runtime, but neither in the API nor as a static pod
		verdict *status.Verdict
		grace   *int64             // grace period of an eviction, in seconds
		cancel  context.CancelFunc // cancels the start of containers that is in progress
	}

	shown reportedState
	kills kills

	// Only the worker's goroutine uses the following fields:

	admitted bool
	alive    bool // a container ran while the pod was held; see package restorehold
	holding  bool // the pod waits because it is held
	failures int
	backoffs map[string]*imageBackoff
	stopping *stopping
	grace    time.Duration   // grace period while the pod is ending; zero if it is not ending
	again    map[string]bool // names of containers that were stopped in order to start them again
	// State of resizes: the generation for which a refusal was reported, whether a resize is in
	// progress, and the last error of a resize.
	refused     int64
	resizing    bool
	resizeError string
	released    bool // the pod's volumes, cgroup and other resources were released
	events      map[string]bool
	phases      map[Phase]time.Duration // durations of the phases of the pod's start, until they are reported
	looked      *v1.Pod                 // the version of the pod in the last sync
	ending      time.Time               // when the pod began to end; zero before
}

func newWorker(p *Pool, uid types.UID) *worker {
	return &worker{
		Pool: p, uid: uid, wake: make(chan struct{}, 1), backoffs: map[string]*imageBackoff{},
		again: map[string]bool{}, shown: reportedState{waiting: map[string]v1.ContainerStateWaiting{}},
		kills: kills{runs: map[string]*kill{}}, events: map[string]bool{},
		phases: map[Phase]time.Duration{},
	}
}

func (w *worker) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// setBare gives the worker a pod that exists only in the container runtime.
func (w *worker) setBare(pod *v1.Pod) {
	w.in.Lock()
	w.in.bare = true
	w.in.Unlock()
	w.set(pod)
}

func (w *worker) set(pod *v1.Pod) {
	w.in.Lock()
	if w.in.pod == nil && pod.Status.StartTime == nil {
		w.in.seen = w.cfg.Clock.Now()
		w.in.since = w.in.seen
	}
	before := w.in.pod
	w.in.pod = pod
	if pod.DeletionTimestamp != nil {
		w.interrupt()
	}
	w.in.Unlock()
	if before != nil && w.cfg.Observer != nil {
		w.cfg.Observer.Updated(before, pod)
	}
	w.wakeUp()
}

// started reports how long the pod took to start. Only the first call reports anything.
func (w *worker) started() {
	w.in.Lock()
	seen := w.in.seen
	w.in.seen = time.Time{}
	w.in.Unlock()
	if !seen.IsZero() && w.cfg.Observer != nil {
		w.cfg.Observer.Started(w.cfg.Clock.Since(seen), w.phases)
		w.phases = map[Phase]time.Duration{}
	}
}

func (w *worker) remove() {
	w.in.Lock()
	w.in.removed = true
	w.interrupt()
	w.in.Unlock()
	w.wakeUp()
}

func (w *worker) evict(v status.Verdict, grace int64) {
	w.in.Lock()
	if w.in.verdict == nil {
		w.in.verdict, w.in.grace = &v, &grace
	}
	w.interrupt()
	w.in.Unlock()
	w.wakeUp()
}

// interrupt cancels a start of containers that is in progress, for example an image pull. The
// caller holds the lock w.in.
func (w *worker) interrupt() {
	if w.in.cancel != nil {
		w.in.cancel()
	}
}

// run syncs the pod whenever that is necessary, until nothing of the pod is left or ctx ends.
func (w *worker) run(ctx context.Context) {
	gone := false
	defer func() {
		w.delete(w.uid)
		if gone {
			w.cfg.Release.Removed(w.uid)
		}
	}()
	for {
		var again time.Time
		again, gone = w.sync(ctx)
		if gone {
			w.cfg.Release.Forget(w.uid)
		}
		if gone || ctx.Err() != nil {
			w.probes.StopPod(w.uid)
			return
		}
		if !w.sleep(ctx, again) {
			return
		}
	}
}

// sleep waits until something wakes the worker, or until the given time if that is not zero. It
// returns false if ctx ends first.
func (w *worker) sleep(ctx context.Context, until time.Time) bool {
	var timeout <-chan time.Time
	if !until.IsZero() {
		t := w.cfg.Clock.NewTimer(max(until.Sub(w.cfg.Clock.Now()), 0))
		defer t.Stop()
		timeout = t.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.wake:
	case <-timeout:
	}
	return true
}

// observation holds the data about the pod on which a sync bases its decisions.
type observation struct {
	pod     *v1.Pod
	seen    *cri.Pod
	removed bool
	verdict *status.Verdict
	grace   *int64
	behind  map[string]allocation.Had
	resize  status.Resize
	// undecided reports whether the resize must be asked for again, because not all pods of the node
	// are known yet.
	undecided bool
}

func (w *worker) sync(ctx context.Context) (again time.Time, gone bool) {
	w.in.Lock()
	l := observation{pod: w.in.pod, removed: w.in.removed, verdict: w.in.verdict, grace: w.in.grace}
	w.in.Unlock()
	if l.pod == nil {
		return time.Time{}, l.removed
	}
	ctx, span := w.span(ctx, l.pod)
	defer span.End()
	begun := w.cfg.Clock.Now()
	seen, err := w.cfg.Runtime.Pod(ctx, w.uid)
	if err != nil {
		return w.failed(ctx, "Failed to read the pod from the runtime", err), false
	}
	l.seen = seen
	if w.stopping == nil { // a stop in progress may still use the records of containers that have exited
		w.kills.forget(seen)
	}
	l.verdict = cmp.Or(l.verdict, w.mustEnd(&l))
	if l.removed || l.pod.DeletionTimestamp != nil || l.verdict != nil || hasEnded(l.pod) {
		return w.end(ctx, l)
	}
	if until := w.cfg.Preemption.StartBy(w.uid); !until.IsZero() {
		return earliest(until, w.deadline(l.pod)), false
	}
	if w.hold(&l) {
		return w.deadline(l.pod), false
	}
	operation := w.updateType(ctx, l.pod)
	defer func() { w.cfg.Metrics.OperationDone(operation, w.cfg.Clock.Since(begun)) }()
	w.negotiate(&l)
	w.cfg.Objects.RegisterPod(l.pod)
	w.probe(l) // must precede Decide: a sidecar without probes counts as started only after this call
	plan := Decide(w.facts(&l))
	if plan.Done {
		return w.end(ctx, l)
	}
	again = w.advance(ctx, l, plan)
	if l.resize.Pending != "" {
		again = earliest(again, w.cfg.Clock.Now().Add(retryResize))
	}
	if l.undecided {
		again = earliest(again, w.cfg.Clock.Now().Add(retryUndecided))
	}
	return again, false
}

// hasEnded reports whether the pod has ended according to its status in the API.
func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

// mustEnd returns the verdict for a pod that must end although it was not deleted, or nil: the node
// rejects or preempts it, or its active deadline has passed.
func (w *worker) mustEnd(l *observation) *status.Verdict {
	if l.removed || l.pod.DeletionTimestamp != nil || hasEnded(l.pod) {
		return nil
	}
	var v *status.Verdict
	if !w.admitted {
		if v = w.cfg.Preemption.Victim(w.uid); v == nil {
			if r := w.cfg.Allocation.Admit(l.pod); r != nil {
				v = w.refuse(l.pod, r.Reason, r.Message)
			}
		}
		w.admitted = true
	}
	if limit := l.pod.Spec.ActiveDeadlineSeconds; v == nil && limit != nil && l.pod.Status.StartTime != nil &&
		!w.cfg.Clock.Now().Before(l.pod.Status.StartTime.Add(time.Duration(*limit)*time.Second)) {
		v = &status.Verdict{Phase: v1.PodFailed, Reason: "DeadlineExceeded",
			Message: "Pod was active on the node longer than the specified deadline"}
		w.cfg.Event(l.pod, "", v1.EventTypeNormal, v.Reason, v.Message)
	}
	if v != nil {
		w.in.Lock()
		w.in.verdict = v
		w.in.Unlock()
	}
	return v
}

// refuse reports that the node rejects the pod, in an event and in metrics. It returns the verdict
// for the pod's status.
func (w *worker) refuse(pod *v1.Pod, reason, message string) *status.Verdict {
	w.cfg.Event(pod, "", v1.EventTypeWarning, reason, message)
	w.cfg.Metrics.Rejected(reason)
	return &status.Verdict{Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message}
}

// reject ends a pod that was admitted but turns out not to fit on the node.
func (w *worker) reject(pod *v1.Pod, reason, message string) {
	v := w.refuse(pod, reason, message)
	w.in.Lock()
	if w.in.verdict == nil {
		w.in.verdict = v
	}
	w.in.Unlock()
	w.wakeUp()
}

func (w *worker) facts(l *observation) Facts {
	return Facts{
		Pod: l.pod, Seen: l.seen, Now: w.cfg.Clock.Now(), Backoff: w.backoff, Behind: l.behind, Again: w.again,
		Started: func(id string) bool {
			known, _ := w.probes.Result(id)
			return known.Started
		},
		Failed: func(id string) (prober.Kind, bool) {
			kind, _, failed := w.probes.Failed(id)
			return kind, failed
		},
	}
}

// backoff returns the restart delay of a container. The delay starts again if the container's image
// has changed.
func (w *worker) backoff(c *v1.Container) *restart.Backoff {
	b := w.backoffs[c.Name]
	if b == nil || b.image != c.Image {
		b = &imageBackoff{image: c.Image, Backoff: restart.Backoff{Max: w.cfg.MaxBackoff}}
		w.backoffs[c.Name] = b
	}
	return &b.Backoff
}

type imageBackoff struct {
	restart.Backoff
	image string
}

// failed logs the failure of a sync and returns the time at which to retry.
func (w *worker) failed(ctx context.Context, what string, err error) time.Time {
	span := trace.SpanFromContext(ctx)
	span.RecordError(err)
	span.SetStatus(codes.Error, what)
	w.cfg.Log.Warn(what, "pod", w.uid, "err", err)
	d := delay(w.failures)
	w.failures++
	return w.cfg.Clock.Now().Add(d)
}

// delay returns how long the worker waits after a failed sync. failures is the number of failures
// before it.
func delay(failures int) time.Duration { return min(retryFirst<<min(failures, 10), retryMax) }
