// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/api/clock"
)

// What pods and the node show, in Kubernetes' words.
const (
	Reason         = "Terminated"
	Message        = "Pod was terminated in response to imminent node shutdown."
	RefusalReason  = "NodeShutdown"
	RefusalMessage = "Pod was rejected as the node is shutting down."
)

var errNode = errors.New("node is shutting down")

const (
	// retryPeriod is how soon logind is looked for again.
	retryPeriod = 5 * time.Second
	// endedPeriod is how often it is looked whether pods have ended.
	endedPeriod = 200 * time.Millisecond
)

// Logind is systemd's, as far as it is needed.
type Logind interface {
	// MaxDelay is how long logind waits at most; SetMaxDelay has it wait longer.
	MaxDelay(ctx context.Context) (time.Duration, error)
	SetMaxDelay(ctx context.Context, d time.Duration) error
	// Inhibit has a shutdown wait until what it returns is closed.
	Inhibit(ctx context.Context) (io.Closer, error)
	// Shutdowns tells of shutdowns that begin (true) and that are called off, until ctx ends or the
	// connection does: then it closes the channel.
	Shutdowns(ctx context.Context) (<-chan bool, error)
}

// Config is what a Manager needs.
type Config struct {
	Kubelet *kubeletconfig.KubeletConfiguration
	// Connect finds logind; what it returns is closed when it is of no use any more.
	Connect func() (Logind, io.Closer, error)
	// Pods are those that have not ended.
	Pods func() []*v1.Pod
	// End ends a pod within that many seconds.
	End func(pod *v1.Pod, grace int64)
	// Ended reports whether nothing of a pod runs any more.
	Ended func(ctx context.Context, pod *v1.Pod) bool
	// Changed is called when the node begins to go down, and when that is called off. It must not block.
	Changed func()
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager sees to shutdowns.
type Manager struct {
	cfg        Config
	groups     []group
	begun, end prometheus.Gauge

	mu   sync.Mutex
	down bool
}

// New makes a Manager.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg, groups: groups(cfg.Kubelet)}
	m.begun = prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_start_time_seconds",
		Help: "[ALPHA] Last graceful shutdown start time since unix epoch in seconds"})
	m.end = prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_end_time_seconds",
		Help: "[ALPHA] Last graceful shutdown end time since unix epoch in seconds"})
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(m.begun, m.end)
	}
	return m
}

// Down returns why the node is not ready, or nil.
func (m *Manager) Down() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errNode
	}
	return nil
}

// Run sees to shutdowns until ctx ends. Without time for them there is nothing to do.
func (m *Manager) Run(ctx context.Context) error {
	if total(m.groups) <= 0 {
		return nil
	}
	for ctx.Err() == nil {
		if err := m.follow(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("Graceful node shutdown is not available", "err", err)
		}
		t := m.cfg.Clock.NewTimer(retryPeriod)
		select {
		case <-ctx.Done():
		case <-t.C():
		}
		t.Stop()
	}
	return nil
}

// follow sees to shutdowns as long as logind can be reached.
func (m *Manager) follow(ctx context.Context) error {
	logind, connection, err := m.cfg.Connect()
	if err != nil {
		return fmt.Errorf("logind: %w", err)
	}
	defer func() { _ = connection.Close() }()
	if err := m.makeTime(ctx, logind); err != nil {
		return err
	}
	lock, err := logind.Inhibit(ctx)
	if err != nil {
		return fmt.Errorf("inhibit shutdowns: %w", err)
	}
	defer func() { _ = lock.Close() }()
	events, err := logind.Shutdowns(ctx)
	if err != nil {
		return fmt.Errorf("watch shutdowns: %w", err)
	}
	for begins := range events {
		m.set(begins)
		if begins {
			m.endPods(ctx)
			_ = lock.Close() // the machine may go down
			continue
		}
		_ = lock.Close() // it may be held still
		again, err := logind.Inhibit(ctx)
		if err != nil {
			return fmt.Errorf("inhibit shutdowns: %w", err)
		}
		lock = again
	}
	return errors.New("the connection to logind ended")
}

// makeTime has logind wait as long as the groups take.
func (m *Manager) makeTime(ctx context.Context, logind Logind) error {
	needed := total(m.groups)
	has, err := logind.MaxDelay(ctx)
	if err != nil {
		return fmt.Errorf("delay of logind: %w", err)
	}
	if has >= needed {
		return nil
	}
	if err := logind.SetMaxDelay(ctx, needed); err != nil {
		return fmt.Errorf("delay of logind: %w", err)
	}
	if has, err = logind.MaxDelay(ctx); err != nil {
		return fmt.Errorf("delay of logind: %w", err)
	}
	if has < needed {
		return fmt.Errorf("node shutdown manager was timed out: expected logind to wait %s, it waits %s", needed, has)
	}
	return nil
}

func (m *Manager) set(down bool) {
	m.mu.Lock()
	changed := m.down != down
	m.down = down
	m.mu.Unlock()
	if changed {
		m.cfg.Log.Info("Node shutdown began or was cancelled", "down", down)
		m.cfg.Changed()
	}
}

// endPods ends all pods, a group after the other.
func (m *Manager) endPods(ctx context.Context) {
	m.begun.Set(seconds(m.cfg.Clock.Now()))
	for _, g := range fill(m.groups, m.cfg.Pods()) {
		for _, pod := range g.pods {
			m.cfg.End(pod, graceOf(pod, g.grace))
		}
		m.await(ctx, g)
	}
	m.end.Set(seconds(m.cfg.Clock.Now()))
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

// await returns when a group's pods have ended, or its time is over.
func (m *Manager) await(ctx context.Context, g group) {
	until := m.cfg.Clock.Now().Add(g.grace)
	for _, pod := range g.pods {
		for !m.cfg.Ended(ctx, pod) {
			left := until.Sub(m.cfg.Clock.Now())
			if left <= 0 {
				m.cfg.Log.Warn("Pod did not end in its grace period", "priority", g.from, "pod", pod.Namespace+"/"+pod.Name)
				return
			}
			t := m.cfg.Clock.NewTimer(min(left, endedPeriod))
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C():
			}
		}
	}
}
