// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
)

const (
	// Reason is the reason of evicted pods, and of pods that are rejected under pressure.
	Reason = "Evicted"
	// lookPeriod is the interval between checks of the node.
	lookPeriod = 10 * time.Second
	// cleanupPatience is how long to wait for the end of an evicted pod before the next one is
	// evicted.
	cleanupPatience = 30 * time.Second
	// atOnce is the grace period, in seconds, of pods that must end at once.
	atOnce = 1
)

// Eviction is the eviction of a pod.
type Eviction struct {
	Pod     *v1.Pod
	Message string
	// Grace is the grace period in seconds.
	Grace int64
	// Disruption reports whether the pod is evicted because of the node, not because of its own
	// limits.
	Disruption bool
	// Signal is the resource of the node that is short, or the limit of the pod that is exceeded.
	Signal Signal
}

// Config holds a Manager's settings.
type Config struct {
	// Settings.

	Thresholds []Threshold
	// Hold is how long a pressure condition remains after its threshold is not crossed any more.
	Hold time.Duration
	// MaxGrace is the maximum grace period, in seconds, of pods that are evicted for a soft
	// threshold.
	MaxGrace int64

	// Measurements.

	// Observe measures the node.
	Observe func(ctx context.Context) (Observation, error)
	// Pods returns the node's pods that have not ended.
	Pods func() []*v1.Pod
	// Usage returns the usage of a pod, or nil if it is not known.
	Usage func(ctx context.Context, pod *v1.Pod) (*statsapi.PodStats, error)

	// Actions.

	// Reclaim frees unused disk space.
	Reclaim func(ctx context.Context) error
	// Evict ends a pod. It does not wait.
	Evict func(Eviction)
	// Event records a warning on the node.
	Event func(reason, message string)
	// Changed is called when the pressure conditions change.
	Changed func()

	// Metrics count evictions; nil disables them.
	Metrics *metrics.Node
	Clock   clock.Clock
	Log     *slog.Logger
}

// Manager evicts pods of a node. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// Used only by the goroutine of Run:
	state   state
	evicted types.UID // the pod that was evicted last
	since   time.Time

	mu    sync.Mutex
	holds map[v1.NodeConditionType]bool
}

// New returns a Manager.
func New(cfg Config) *Manager {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewNode(nil)
	}
	return &Manager{cfg: cfg, state: state{seen: map[v1.NodeConditionType]time.Time{}},
		holds: map[v1.NodeConditionType]bool{}}
}

// Pressures returns the pressure conditions that are true.
func (m *Manager) Pressures() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.holds))
}

// RejectReason returns why the node cannot run a new pod under its present pressure, or "".
// Critical pods are never rejected. If memory pressure is the only condition, only BestEffort pods
// that do not tolerate its taint are rejected.
func (m *Manager) RejectReason(pod *v1.Pod) string {
	holds := m.Pressures()
	if len(holds) == 0 || IsCritical(pod) {
		return ""
	}
	if len(holds) == 1 && holds[0] == v1.NodeMemoryPressure {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		tolerates := func(t v1.Toleration) bool { return tolerated(&t, &taint) }
		if pod.Status.QOSClass != v1.PodQOSBestEffort || slices.ContainsFunc(pod.Spec.Tolerations, tolerates) {
			return ""
		}
	}
	return fmt.Sprintf("The node had condition: %v. ", holds)
}

// tolerated reports whether t tolerates the taint, which has no value. A toleration with a
// comparison operator does not tolerate it.
func tolerated(t *v1.Toleration, taint *v1.Taint) bool {
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
		(t.Operator == v1.TolerationOpExists || (t.Operator == "" || t.Operator == v1.TolerationOpEqual) &&
			t.Value == taint.Value)
}

// Run checks the node periodically until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	t := m.cfg.Clock.NewTicker(lookPeriod)
	defer t.Stop()
	for {
		m.Check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

// Check checks the node once, and reclaims disk space or evicts a pod if necessary.
func (m *Manager) Check(ctx context.Context) {
	pods := m.cfg.Pods()
	if m.leaving(pods) || m.limits(ctx, pods) || len(m.cfg.Thresholds) == 0 {
		return
	}
	measured := m.cfg.Clock.Now()
	o, due := m.measure(ctx)
	if len(due) == 0 {
		return
	}
	t := &m.cfg.Thresholds[due[0]]
	r := resourceOf(t.Signal)
	m.cfg.Log.Warn("Eviction threshold reached", "signal", t.Signal, "available", o[t.Signal].Available,
		"threshold", t.quantity(o[t.Signal].Capacity).Value())
	m.cfg.Event("EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", r))
	if condition(t.Signal) == v1.NodeDiskPressure {
		if err := m.cfg.Reclaim(ctx); err != nil {
			m.cfg.Log.Warn("Failed to reclaim disk space", "err", err)
		}
		measured = m.cfg.Clock.Now()
		if o, due = m.measure(ctx); len(due) == 0 {
			return
		}
		t = &m.cfg.Thresholds[due[0]]
	}
	if m.evictOne(ctx, pods, t, o[t.Signal]) {
		for _, i := range due {
			m.cfg.Metrics.StatsAge(string(m.cfg.Thresholds[i].Signal), m.cfg.Clock.Since(measured))
		}
	}
}

// leaving reports whether the pod that was evicted last still uses resources.
func (m *Manager) leaving(pods []*v1.Pod) bool {
	if m.evicted == "" {
		return false
	}
	there := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == m.evicted })
	if there && m.cfg.Clock.Since(m.since) < cleanupPatience {
		return true
	}
	m.evicted = ""
	return false
}

// measure measures the node's resources, updates its conditions, and returns the thresholds to act
// on.
func (m *Manager) measure(ctx context.Context) (Observation, []int) {
	o, err := m.cfg.Observe(ctx)
	if err != nil {
		// continue with the resources that could be measured
		m.cfg.Log.Warn("Failed to measure some of the node's resources", "err", err)
	}
	holds, due := m.state.step(m.cfg.Clock.Now(), m.cfg.Thresholds, o, m.cfg.Hold)
	m.mu.Lock()
	changed := !maps.Equal(m.holds, holds)
	m.holds = holds
	m.mu.Unlock()
	if changed {
		m.cfg.Changed()
	}
	return o, due
}

// limits evicts the pods that exceed their storage limits, and reports whether there were any.
func (m *Manager) limits(ctx context.Context, pods []*v1.Pod) bool {
	evicted := false
	for _, pod := range pods {
		if !HasStorageLimit(pod) || IsCritical(pod) {
			continue
		}
		s, err := m.cfg.Usage(ctx, pod)
		if err != nil || s == nil {
			continue // the usage is not known: the pod may not have started, or may have ended
		}
		if why, signal := overLimit(pod, s); why != "" {
			m.evict(Eviction{Pod: pod, Message: why, Grace: atOnce, Signal: signal})
			evicted = true
		}
	}
	return evicted
}

// evictOne evicts the pod with the highest rank, and reports whether there is one.
func (m *Manager) evictOne(ctx context.Context, pods []*v1.Pod, t *Threshold, a Amount) bool {
	var list []Candidate
	for _, pod := range pods {
		if IsCritical(pod) {
			continue
		}
		s, err := m.cfg.Usage(ctx, pod)
		if err != nil {
			m.cfg.Log.Debug("Failed to measure a pod", "pod", pod.UID, "err", err)
			s = nil
		}
		list = append(list, Candidate{Pod: pod, Usage: s})
	}
	if len(list) == 0 {
		m.cfg.Log.Warn("Eviction threshold reached, but no pod can be evicted", "signal", t.Signal)
		return false
	}
	rank(list, resourceOf(t.Signal))
	grace := int64(atOnce)
	if t.Soft {
		grace = m.cfg.MaxGrace
		if own := list[0].Pod.Spec.TerminationGracePeriodSeconds; own != nil {
			grace = min(grace, *own)
		}
	}
	m.evict(Eviction{Pod: list[0].Pod, Message: message(list[0], t, a), Grace: grace, Disruption: true, Signal: t.Signal})
	return true
}

func (m *Manager) evict(e Eviction) {
	m.evicted, m.since = e.Pod.UID, m.cfg.Clock.Now()
	m.cfg.Metrics.Evicted(string(e.Signal))
	m.cfg.Evict(e)
}
