// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/dns"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// Config is what the workers of a node share.
type Config struct {
	Clock   clock.Clock
	Log     *slog.Logger
	Runtime Runtime
	Volumes Volumes
	Objects Objects
	Images  Images
	Cgroups Cgroups
	Devices Devices
	Status  Statuses
	Handler *prober.Handler
	// Metrics count what is done; nil: nobody counts.
	Metrics *metrics.Pods
	// ProbeMetrics are where probes are counted; nil: nowhere.
	ProbeMetrics prometheus.Registerer
	// Tracer makes the spans of what is done for pods; nil: there are none.
	Tracer trace.Tracer
	// Event records an event on a container of the pod, or on the pod when container is empty.
	Event func(pod *v1.Pod, container, eventType, reason, message string)
	// Listening tells whether something listens at all of these TCP ports of a container.
	Listening  func(ctx context.Context, id string, ports []int32) bool
	Allocation Allocation
	// Released is told of pods of which nothing runs any more.
	Released func(ctx context.Context, uid types.UID) error
	// Room returns when a pod is to be started at the latest, if others end to make room for it; zero: now. Wake tells that they have.
	Room func(uid types.UID) time.Time
	// Doomed returns why a pod ends that an earlier process began to end, or nil; it may be nil itself.
	Doomed func(uid types.UID) *status.Verdict
	// Started is told how long it took from the first sight of a pod until it was seen to run, and what of that each phase took;
	// it may be nil.
	Started func(took time.Duration, phases map[Phase]time.Duration)
	// Asked is told of each new version of a pod, Resized how long it took to give running containers other resources and what came
	// of it; they may be nil.
	Asked   func(before, now *v1.Pod)
	Resized func(took time.Duration, err error)
	// Left is told of pods of which nothing is left on the node, while the pool still knows them; Gone once it does not, so that
	// whoever waits for that finds it so.
	Left func(uid types.UID)
	Gone func(uid types.UID)
	// Ready returns nil once sandboxes can be made.
	Ready func() error
	// Services are those that containers in the namespace get variables of.
	Services func(namespace string) ([]*v1.Service, error)
	// RuntimeHandler returns the handler of a RuntimeClass; "" names the default.
	RuntimeHandler func(class string) (string, error)
	// UserNamespace returns the pod's own user namespace, or nil for that of the machine.
	UserNamespace func(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error)
	// Pinned are the CPUs and the NUMA nodes that a container is to run on, as lists; empty stands for all.
	Pinned func(pod types.UID, container string) (cpus, nodes string)
	// Exclusive tells whether CPUs of the node are a container's alone, or one of the pod's containers' if it is "".
	Exclusive func(pod types.UID, container string) bool
	// Allocatable are the node's resources.
	Allocatable func() v1.ResourceList

	DNS           dns.Settings
	ClusterDomain string
	HostIPs       []string
	RootDir       string // /var/lib/kubelet
	LogRoot       string // /var/log/pods
	LinkRoot      string // /var/log/containers
	SeccompRoot   string
	Node          qos.Node
	RuntimeName   string
	// RecursiveReadOnly tells whether a handler supports recursive read-only mounts.
	RecursiveReadOnly func(handler string) bool
	SeccompDefault    bool
	// MaxBackoff bounds how long a container waits for its next start; 0 is Kubernetes' own bound.
	MaxBackoff time.Duration
}

// Pool has the workers of a node. It is safe for concurrent use.
type Pool struct {
	cfg    Config
	probes *prober.Manager
	ctx    context.Context // the life of the workers, which is longer than that of a call
	wg     sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*worker
}

// NewPool returns a pool whose workers stop to work when ctx ends. Pods go on running.
func NewPool(ctx context.Context, cfg Config) *Pool {
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewPods(nil)
	}
	p := &Pool{cfg: cfg, ctx: ctx, workers: map[types.UID]*worker{}}
	p.probes = prober.NewManager(ctx, prober.Config{Clock: cfg.Clock, Handler: cfg.Handler, Changed: p.probed, Event: cfg.Event, Listening: cfg.Listening, Metrics: cfg.ProbeMetrics})
	return p
}

// Set hands the pool a pod of the node, or its new version.
func (p *Pool) Set(pod *v1.Pod) {
	p.cfg.Status.Observe(pod)
	p.worker(pod.UID).set(pod)
}

// Remove tells that the API does not have the pod any more.
func (p *Pool) Remove(uid types.UID) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	p.cfg.Status.Forget(uid)
	if w != nil {
		w.remove()
	}
}

// Orphan hands the pool a pod that the runtime has and the API does not, to end it.
func (p *Pool) Orphan(seen *cri.Pod) {
	p.mu.Lock()
	known := p.workers[seen.UID] != nil
	p.mu.Unlock()
	if known {
		return
	}
	p.cfg.Metrics.Orphaned()
	w := p.worker(seen.UID)
	w.setBare(seen.Bare())
	w.remove()
}

// Wake has a pod looked at again.
func (p *Pool) Wake(uid types.UID) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.poke()
	}
}

// probed shows what a probe has found, and has the pod looked at.
func (p *Pool) probed(uid types.UID) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.probed()
		w.poke()
	}
}

// Resume takes over what the API turned out to have of a static pod, which may have run before the API was heard.
func (p *Pool) Resume(uid types.UID, s v1.PodStatus) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.resume(&s)
		w.poke()
	}
}

// WakeAll has every pod looked at again.
func (p *Pool) WakeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		w.poke()
	}
}

// Knows tells whether a pod has a worker, and so still may have something on the node.
func (p *Pool) Knows(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[uid] != nil
}

// Evict ends a pod for a reason of the node's.
func (p *Pool) Evict(uid types.UID, v status.Verdict, grace int64) {
	p.mu.Lock()
	w := p.workers[uid]
	p.mu.Unlock()
	if w != nil {
		w.evict(v, grace)
	}
}

// Wait returns when all workers have ended after the context of NewPool has.
func (p *Pool) Wait() {
	p.wg.Wait()
	p.probes.Wait()
}

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

// left is called by a worker that has nothing more to do.
func (p *Pool) left(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, uid)
}
