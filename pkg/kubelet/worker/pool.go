// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// Registry finds the workers of pods by UID. Parts of the kubelet that are built before the Pool
// use it to wake and end pods. It is safe for concurrent use. Calls for a pod without a worker do
// nothing.
type Registry struct {
	mu      sync.Mutex
	workers map[types.UID]*worker
}

// NewRegistry returns a Registry without pod workers.
func NewRegistry() *Registry { return &Registry{workers: map[types.UID]*worker{}} }

func (r *Registry) find(uid types.UID) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers[uid]
}

func (r *Registry) all() []*worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.workers))
}

// delete removes the worker of a pod that has ended.
func (r *Registry) delete(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, uid)
}

// Pods returns the UIDs of all pods that have a worker.
func (r *Registry) Pods() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.workers))
}

// HasWorker reports whether a pod has a worker. As long as it has one, the node may still hold
// something of the pod.
func (r *Registry) HasWorker(uid types.UID) bool { return r.find(uid) != nil }

// Wake makes the worker of a pod sync the pod again, even if nothing has changed.
func (r *Registry) Wake(uid types.UID) {
	if w := r.find(uid); w != nil {
		w.wakeUp()
	}
}

// WakeAll makes every worker sync its pod again.
func (r *Registry) WakeAll() {
	for _, w := range r.all() {
		w.wakeUp()
	}
}

// Evict ends a pod within grace seconds because the node requires it. v becomes the pod's status.
func (r *Registry) Evict(uid types.UID, v status.Verdict, grace int64) {
	if w := r.find(uid); w != nil {
		w.evict(v, grace)
	}
}

// Remove ends a pod that is no longer in the API.
func (r *Registry) Remove(uid types.UID) {
	if w := r.find(uid); w != nil {
		w.remove()
	}
}

// Resume restores the probe results of a static pod from the status of its mirror pod in the API.
// The pod's worker may have started before the mirror pod could be read.
func (r *Registry) Resume(uid types.UID, s v1.PodStatus) {
	if w := r.find(uid); w != nil {
		w.resume(&s)
		w.wakeUp()
	}
}

// Pool runs the workers of a node, one for each pod. It is safe for concurrent use.
type Pool struct {
	*Registry
	cfg    Config
	probes *prober.Manager
	ctx    context.Context // context of all workers, which outlive the calls that start them
	wg     sync.WaitGroup
}

// NewPool returns a Pool that adds its workers to r. The workers end when ctx ends, but the pods
// keep running.
func NewPool(ctx context.Context, r *Registry, cfg Config) *Pool {
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewPods(nil)
	}
	p := &Pool{Registry: r, cfg: cfg, ctx: ctx}
	p.probes = prober.NewManager(ctx, prober.Config{
		Clock: cfg.Clock, Handler: cfg.Handler, Changed: p.probed, Event: cfg.Event,
		Listening: cfg.RuntimeState.Listening, Metrics: cfg.ProbeMetrics,
	})
	return p
}

// Set adds a pod to the pool, or updates it to a new version.
func (p *Pool) Set(pod *v1.Pod) {
	p.cfg.Status.Observe(pod)
	p.worker(pod.UID).set(pod)
}

// Remove ends a pod that is no longer in the API, and forgets its status.
func (p *Pool) Remove(uid types.UID) {
	w := p.find(uid)
	p.cfg.Status.Forget(uid)
	if w != nil {
		w.remove()
	}
}

// Orphan ends a pod that exists in the runtime but in no source of pods.
func (p *Pool) Orphan(seen *cri.Pod) {
	if p.HasWorker(seen.UID) {
		return
	}
	p.cfg.Metrics.Orphaned()
	w := p.worker(seen.UID)
	w.setBare(seen.MinimalPod())
	w.remove()
}

// probed updates the pod's status after the result of a probe has changed, and wakes the pod's
// worker.
func (p *Pool) probed(uid types.UID) {
	if w := p.find(uid); w != nil {
		w.probed()
		w.wakeUp()
	}
}

// Wait waits until all workers have ended. The caller must have cancelled the context passed to
// NewPool.
func (p *Pool) Wait() {
	p.wg.Wait()
	p.probes.Wait()
}

// worker returns the worker of a pod, and starts one if the pod has none.
func (p *Pool) worker(uid types.UID) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.workers[uid]
	if w == nil {
		w = newWorker(p, uid)
		p.workers[uid] = w
		p.wg.Go(func() { w.run(p.ctx) })
	}
	return w
}
