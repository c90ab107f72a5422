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

// Reasons and messages in the statuses of pods and of the node. Kubernetes uses the same ones.
const (
	Reason         = "Terminated"
	Message        = "Pod was terminated in response to imminent node shutdown."
	RefusalReason  = "NodeShutdown"
	RefusalMessage = "Pod was rejected as the node is shutting down."
)

var errNode = errors.New("node is shutting down")

const (
	// retryPeriod is the delay before the Manager connects to logind again after an error.
	retryPeriod = 5 * time.Second
	// endedPeriod is the interval between checks whether pods have ended.
	endedPeriod = 200 * time.Millisecond
)

// Logind is the part of systemd-logind that a Manager uses.
type Logind interface {
	// MaxDelay returns the longest time for which logind delays a shutdown. SetMaxDelay increases
	// it.
	MaxDelay(ctx context.Context) (time.Duration, error)
	SetMaxDelay(ctx context.Context, d time.Duration) error
	// Inhibit takes a lock that delays shutdowns until the result is closed.
	Inhibit(ctx context.Context) (io.Closer, error)
	// Shutdowns returns a channel that receives true when a shutdown begins and false when it is
	// cancelled. It is closed when ctx ends or the connection breaks.
	Shutdowns(ctx context.Context) (<-chan bool, error)
}

// Config holds a Manager's settings.
type Config struct {
	Kubelet *kubeletconfig.KubeletConfiguration
	// Connect connects to logind. The caller closes the result.
	Connect func() (Logind, io.Closer, error)
	// Pods returns the pods whose containers have not all ended.
	Pods func() []*v1.Pod
	// End starts to end a pod with a grace period in seconds. It does not wait.
	End func(pod *v1.Pod, grace int64)
	// Ended reports whether all containers of a pod have ended.
	Ended func(ctx context.Context, pod *v1.Pod) bool
	// Changed is called when a shutdown is announced or cancelled. It must not block.
	Changed func()
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Manager ends the node's pods before a shutdown.
type Manager struct {
	cfg        Config
	groups     []group
	begun, end prometheus.Gauge

	mu   sync.Mutex
	down bool
}

// New returns a Manager.
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

// Down returns an error for the node's Ready condition while a shutdown is in progress, otherwise
// nil.
func (m *Manager) Down() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errNode
	}
	return nil
}

// Run handles shutdowns until ctx ends. It returns at once if the configuration gives pods no time
// to end.
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

// follow holds the inhibitor lock and handles shutdowns until the connection to logind breaks.
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
			_ = lock.Close() // releases the inhibitor lock, so that the machine shuts down
			continue
		}
		_ = lock.Close() // fails if the lock was already released
		again, err := logind.Inhibit(ctx)
		if err != nil {
			return fmt.Errorf("inhibit shutdowns: %w", err)
		}
		lock = again
	}
	return errors.New("the connection to logind ended")
}

// makeTime increases logind's maximum delay to the sum of the times of all groups.
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
		if down {
			m.cfg.Log.Info("Node shutdown began")
		} else {
			m.cfg.Log.Info("Node shutdown was cancelled")
		}
		m.cfg.Changed()
	}
}

// endPods ends all pods of the node, one group after the other.
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

// await waits until all pods of a group (pods that are ended at the same time) have ended, or the
// group's time is over.
func (m *Manager) await(ctx context.Context, g group) {
	until := m.cfg.Clock.Now().Add(g.grace)
	for _, pod := range g.pods {
		for !m.cfg.Ended(ctx, pod) {
			left := until.Sub(m.cfg.Clock.Now())
			if left <= 0 {
				m.cfg.Log.Warn("Pod did not end in the grace period of the node shutdown",
					"groupPriority", g.from, "pod", pod.Namespace+"/"+pod.Name)
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
