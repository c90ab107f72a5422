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
	// Reason is the reason in the status of evicted pods, and of pods that are rejected because the
	// node is under pressure.
	Reason = "Evicted"
	// lookPeriod is how often the node is checked.
	lookPeriod = 10 * time.Second
	// cleanupPatience is the maximum time to wait until an evicted pod has ended before another pod
	// is evicted.
	cleanupPatience = 30 * time.Second
	// atOnce is the grace period, in seconds, of pods that must end immediately.
	atOnce = 1
)

// Eviction describes the eviction of a pod.
type Eviction struct {
	Pod     *v1.Pod
	Message string
	// Grace is the pod's grace period in seconds.
	Grace int64
	// Disruption means that the pod is evicted because the node lacks a resource, and not because
	// the pod exceeds a limit.
	Disruption bool
	// Signal names the resource that the node lacks, or the limit that the pod exceeds.
	Signal Signal
}

// Config holds a Manager's settings.
type Config struct {
	// Settings:

	Thresholds []Threshold
	// Hold is how long a pressure condition stays true after its threshold was last crossed.
	Hold time.Duration
	// MaxGrace is the maximum grace period, in seconds, of pods that are evicted because of a soft
	// threshold.
	MaxGrace int64

	// Functions that measure:

	// Observe measures the resources of the node.
	Observe func(ctx context.Context) (Observation, error)
	// Pods returns the node's pods that have not ended.
	Pods func() []*v1.Pod
	// Usage returns the resource usage of a pod, or nil if it is unknown.
	Usage func(ctx context.Context, pod *v1.Pod) (*statsapi.PodStats, error)

	// Functions that carry out decisions:

	// Reclaim frees disk space, for example by removing unused images.
	Reclaim func(ctx context.Context) error
	// Evict begins to end a pod and returns without waiting for the pod's end.
	Evict func(Eviction)
	// Event records a warning event on the node.
	Event func(reason, message string)
	// Changed is called when the set of pressure conditions that are true has changed.
	Changed func()

	// Metrics counts evictions. If it is nil, they are not counted.
	Metrics *metrics.Node
	Clock   clock.Clock
	Log     *slog.Logger
}

// Manager evicts pods when the node lacks resources. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// Only the goroutine of Run uses the following fields:
	state   state
	evicted types.UID // the pod that was last evicted, until it has ended or cleanupPatience has passed
	since   time.Time

	mu    sync.Mutex
	holds map[v1.NodeConditionType]bool
}

// New returns a Manager with the given configuration.
func New(cfg Config) *Manager {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewNode(nil)
	}
	return &Manager{cfg: cfg, state: state{seen: map[v1.NodeConditionType]time.Time{}},
		holds: map[v1.NodeConditionType]bool{}}
}

// Pressures returns the pressure conditions that are true now.
func (m *Manager) Pressures() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.holds))
}

// RejectReason returns why the node rejects a new pod because of its pressure conditions, or "".
// Critical pods are never rejected. Under memory pressure alone, the node rejects only BestEffort
// pods that do not tolerate the taint for memory pressure.
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

// tolerated reports whether the toleration t tolerates the taint, which has no value. Tolerations
// with comparison operators never do.
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

// Check checks the node once. If a threshold requires it, Check reclaims disk space or evicts a
// pod.
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
			m.cfg.Log.Warn("Failed to free disk space before an eviction", "err", err)
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

// leaving reports whether the pod that was last evicted is still ending and cleanupPatience has not
// passed.
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

// measure measures the node's resources and updates the pressure conditions. It returns the
// measured amounts and the indexes of the thresholds that require an eviction.
func (m *Manager) measure(ctx context.Context) (Observation, []int) {
	o, err := m.cfg.Observe(ctx)
	if err != nil {
		// Continue with the resources that could be measured.
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

// limits evicts the pods that exceed their storage limits. It reports whether it has evicted any.
func (m *Manager) limits(ctx context.Context, pods []*v1.Pod) bool {
	evicted := false
	for _, pod := range pods {
		if !HasStorageLimit(pod) || IsCritical(pod) {
			continue
		}
		s, err := m.cfg.Usage(ctx, pod)
		if err != nil || s == nil {
			continue // usage unknown: the pod has not started yet, or it has ended
		}
		if why, signal := overLimit(pod, s); why != "" {
			m.evict(Eviction{Pod: pod, Message: why, Grace: atOnce, Signal: signal})
			evicted = true
		}
	}
	return evicted
}

// evictOne evicts the pod that rank puts first. It returns false if there is no pod that may be
// evicted.
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
