// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
)

// Kind is a kind of probe: startup, liveness or readiness.
type Kind string

// The kinds of probes. Events contain these names.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Config holds a Manager's settings.
type Config struct {
	Clock   clock.Clock
	Handler *Handler
	// Changed is called when the result of one of the pod's probes changes. It must not block.
	Changed func(uid types.UID)
	// Event records an event on a container of the pod.
	Event func(pod *v1.Pod, container, eventType, reason, message string)
	// Listening reports whether a container listens on all of these TCP ports.
	Listening func(ctx context.Context, id string, ports []int32) bool
	// Metrics registers the metrics; nil disables them.
	Metrics prometheus.Registerer
}

// A container without a readiness probe is ready as soon as it runs. But its server starts to
// listen only some milliseconds later, and connections before that fail. So such a container
// becomes ready when it listens on its declared TCP ports, or listenPatience after its start.
const (
	listenPatience = time.Second
	listenPoll     = 10 * time.Millisecond
)

// Manager runs the probes of containers. It is safe for concurrent use.
type Manager struct {
	cfg Config
	ctx context.Context // ends all probes; stored here because the probes continue after Start has returned
	wg  sync.WaitGroup

	mu      sync.Mutex
	runs    map[string]*run // by container ID; mu guards this field and the metrics
	metrics *metrics
}

// run is one run of a container, with the results of the container's probes.
type run struct {
	pod   *v1.Pod
	spec  *v1.Container
	id    string
	ip    string
	start time.Time

	// Functions that stop the probes.

	cancel context.CancelFunc
	// stopChecks stops the liveness and startup probes, whose failures restart the container.
	stopChecks context.CancelFunc

	begun chan struct{} // closed after the startup probe has succeeded, or at once without a startup probe

	// The fields below are the results of the probes. mu guards them.

	mu      sync.Mutex
	started bool
	ready   bool
	readied bool // true after the readiness probe has produced a result
	failed  Kind // the probe that has failed: Liveness or Startup; empty if none has
	reason  string
}

// NewManager returns a Manager whose probes end with ctx.
func NewManager(ctx context.Context, cfg Config) *Manager {
	return &Manager{cfg: cfg, ctx: ctx, runs: map[string]*run{}, metrics: newMetrics(cfg.Metrics)}
}

// Result is the result of a container's probes, as its status in the API shows it.
type Result struct{ Started, Ready bool }

// Start starts the probes of a running container. It does nothing if they are already running. The
// argument known is the result in the API; it is valid until a probe produces another result.
func (m *Manager) Start(pod *v1.Pod, c *v1.Container, id, podIP string, started time.Time, known Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[id] != nil || m.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	checks, stopChecks := context.WithCancel(ctx)
	r := &run{pod: pod, spec: c, id: id, ip: podIP, start: started, cancel: cancel, stopChecks: stopChecks,
		begun: make(chan struct{})}
	m.runs[id] = r
	probes := map[Kind]*v1.Probe{Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe}
	if c.StartupProbe == nil || known.Started {
		r.started = true
		close(r.begun)
		delete(probes, Startup)
	}
	r.ready = c.ReadinessProbe == nil || known.Ready
	if ports := tcpPorts(c); r.ready && !known.Ready && len(ports) > 0 &&
		started.Add(listenPatience).After(m.cfg.Clock.Now()) {
		r.ready = false
		m.wg.Go(func() { m.awaitListening(ctx, r, ports) })
	}
	for kind, p := range probes {
		if p == nil {
			continue
		}
		ctx := ctx
		if kind != Readiness {
			ctx = checks
		}
		m.wg.Go(func() { m.probe(ctx, r, kind, p) })
	}
}

// Restore sets the known result of a run whose probes are already running. Results that the probes
// have produced since they started take precedence.
func (m *Manager) Restore(id string, known Result) {
	r := m.run(id)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known.Started && !r.started && r.failed == "" {
		r.started = true
		close(r.begun)
	}
	r.ready = r.ready || known.Ready && !r.readied
}

// Stop stops the probes of a container.
func (m *Manager) Stop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[id]; r != nil {
		r.cancel()
		delete(m.runs, id)
	}
}

// StopChecks stops the liveness and startup probes of a pod that is terminating, because its
// containers are no longer restarted.
func (m *Manager) StopChecks(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		if r.pod.UID == uid {
			r.stopChecks()
		}
	}
}

// StopPod stops all probes of a pod.
func (m *Manager) StopPod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.runs {
		if r.pod.UID == uid {
			r.cancel()
			delete(m.runs, id)
		}
	}
	m.metrics.forget(uid)
}

// Wait returns when all probes have ended. The context passed to NewManager must have ended before.
func (m *Manager) Wait() { m.wg.Wait() }

// Result returns the result of a container's probes. ok is false if the container is not being
// probed.
func (m *Manager) Result(id string) (known Result, ok bool) {
	r := m.run(id)
	if r == nil {
		return Result{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Result{Started: r.started, Ready: r.started && r.ready}, true
}

// Failed reports whether a container must be restarted because of a probe. kind is the probe that
// failed, and message is its failure message.
func (m *Manager) Failed(id string) (kind Kind, message string, failed bool) {
	r := m.run(id)
	if r == nil {
		return "", "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed, r.reason, r.failed != ""
}

func (m *Manager) run(id string) *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[id]
}

// probe runs a probe periodically until the container has ended or the probe is no longer needed.
// For example, a startup probe that has succeeded is no longer needed.
func (m *Manager) probe(ctx context.Context, r *run, kind Kind, p *v1.Probe) {
	if kind != Startup {
		select {
		case <-r.begun:
		case <-ctx.Done():
			return
		}
	}
	delay := r.start.Add(seconds(p.InitialDelaySeconds)).Sub(m.cfg.Clock.Now())
	count := counter{success: max(p.SuccessThreshold, 1), failure: max(p.FailureThreshold, 1)}
	for {
		if !m.wait(ctx, delay) {
			return
		}
		delay = max(seconds(p.PeriodSeconds), time.Second)
		asked := m.cfg.Clock.Now()
		ok, message, err := m.ask(ctx, r, p)
		if ctx.Err() != nil {
			return
		}
		if err != nil { // the probe could not run, so the container's state is unknown
			m.cfg.Event(r.pod, r.spec.Name, v1.EventTypeWarning, "Unhealthy",
				fmt.Sprintf("%s probe errored and resulted in unknown state: %v", kind, err))
			continue
		}
		switch {
		case !ok:
			m.cfg.Event(r.pod, r.spec.Name, v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", kind, message))
		case message != "":
			m.cfg.Event(r.pod, r.spec.Name, v1.EventTypeWarning, "ProbeWarning",
				fmt.Sprintf("%s probe warning: %s", kind, message))
		}
		m.count(r, kind, ok, m.cfg.Clock.Since(asked))
		if reached := count.add(ok); reached && m.applyResult(r, kind, ok, message) {
			return
		}
	}
}

// count adds a result to the metrics. It ignores a result if the probes were stopped meanwhile,
// because the pod's metrics have then been removed.
func (m *Manager) count(r *run, kind Kind, ok bool, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[r.id] == r {
		m.metrics.answer(r, kind, ok, took)
	}
}

func tcpPorts(c *v1.Container) []int32 {
	var out []int32
	for i := range c.Ports {
		if p := &c.Ports[i]; p.Protocol == v1.ProtocolTCP || p.Protocol == "" {
			out = append(out, p.ContainerPort)
		}
	}
	return out
}

// awaitListening marks a container as ready when it listens on ports, or listenPatience after its
// start.
func (m *Manager) awaitListening(ctx context.Context, r *run, ports []int32) {
	until := r.start.Add(listenPatience)
	for !m.cfg.Listening(ctx, r.id, ports) && m.cfg.Clock.Now().Before(until) {
		if !m.wait(ctx, listenPoll) {
			return
		}
	}
	m.applyResult(r, Readiness, true, "")
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (m *Manager) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := m.cfg.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

func (m *Manager) ask(ctx context.Context, r *run, p *v1.Probe) (ok bool, message string, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(seconds(p.TimeoutSeconds), time.Second))
	defer cancel()
	return m.cfg.Handler.Probe(ctx, Target{Container: r.spec, ID: r.id, IP: r.ip}, p)
}

// applyResult applies a result that has reached its threshold. It reports whether the probe need
// not run any more.
func (m *Manager) applyResult(r *run, kind Kind, ok bool, message string) (done bool) {
	r.mu.Lock()
	changed := false
	switch {
	case kind == Readiness:
		changed, r.ready, r.readied = r.ready != ok, ok, true
	case kind == Startup && r.started: // the API already said that the container has started
		done = true
	case !ok:
		changed, done = r.failed == "", true
		r.failed, r.reason = kind, message
	case kind == Startup:
		changed, done, r.started = true, true, true
		close(r.begun)
	}
	r.mu.Unlock()
	if changed {
		m.cfg.Changed(r.pod.UID)
	}
	return done
}

// counter counts how many times in a row a container's probe had the same result.
type counter struct {
	success, failure int32
	last             bool
	n                int32
}

// add adds the result of a probe and reports whether the result has reached its threshold.
func (c *counter) add(ok bool) bool {
	if c.n > 0 && c.last == ok {
		c.n++
	} else {
		c.last, c.n = ok, 1
	}
	if ok {
		return c.n >= c.success
	}
	return c.n >= c.failure
}
