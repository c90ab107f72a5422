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
	// Reason is that of pods that were ended, and of those not taken under pressure.
	Reason = "Evicted"
	// lookPeriod is how often the node is looked at.
	lookPeriod = 10 * time.Second
	// cleanupPatience is how long the end of a pod is waited for before another one is ended.
	cleanupPatience = 30 * time.Second
	// atOnce is the grace period, in seconds, of pods that must go now.
	atOnce = 1
)

// Eviction is a pod that has to end.
type Eviction struct {
	Pod     *v1.Pod
	Message string
	// Grace is how many seconds it gets.
	Grace int64
	// Disruption reports that the pod is evicted because of the node, not because of its own limits.
	Disruption bool
	// Signal is what of the node ran short, or the limit.
	Signal Signal
}

// Config is what a Manager needs.
type Config struct {
	Clock      clock.Clock
	Log        *slog.Logger
	Thresholds []Threshold
	// Hold is how long a pressure condition stays after its threshold is not crossed any more.
	Hold time.Duration
	// MaxGrace bounds the seconds that pods get under a soft threshold.
	MaxGrace int64
	// Observe measures the node.
	Observe func(ctx context.Context) (Observation, error)
	// Reclaim frees unused disk space.
	Reclaim func(ctx context.Context) error
	// Pods are those of the node that have not ended.
	Pods func() []*v1.Pod
	// Usage is what a pod uses, nil if that is not known.
	Usage func(ctx context.Context, pod *v1.Pod) (*statsapi.PodStats, error)
	// Evict ends a pod. It does not wait.
	Evict func(Eviction)
	// Event records a warning on the node.
	Event func(reason, message string)
	// Changed is called when a pressure condition came or went.
	Changed func()
	// Metrics count evictions; nil disables that.
	Metrics *metrics.Node
}

// Manager looks after a node. It is safe for concurrent use.
type Manager struct {
	cfg Config
	// Of the goroutine of Run alone:
	state   state
	evicted types.UID // the last one
	since   time.Time

	mu    sync.Mutex
	holds map[v1.NodeConditionType]bool
}

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.NewNode(nil)
	}
	return &Manager{cfg: cfg, state: state{seen: map[v1.NodeConditionType]time.Time{}}, holds: map[v1.NodeConditionType]bool{}}
}

// Pressures are the pressure conditions that hold.
func (m *Manager) Pressures() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.holds))
}

// Refuses returns why a new pod is not taken under the present pressure, or "".
// Memory is denied to those alone that ask for none.
func (m *Manager) Refuses(pod *v1.Pod) string {
	holds := m.Pressures()
	if len(holds) == 0 || Critical(pod) {
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

// tolerated is for a taint without a value, for which operators that compare say nothing.
func tolerated(t *v1.Toleration, taint *v1.Taint) bool {
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
		(t.Operator == v1.TolerationOpExists || (t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == taint.Value)
}

// Run looks at the node until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	t := m.cfg.Clock.NewTicker(lookPeriod)
	defer t.Stop()
	for {
		m.Look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
	}
}

// Look looks at the node once, and does what has to be done.
func (m *Manager) Look(ctx context.Context) {
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
	m.cfg.Log.Warn("Eviction threshold reached", "signal", t.Signal, "available", o[t.Signal].Available, "threshold", t.quantity(o[t.Signal].Capacity).Value())
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

// leaving reports whether the pod that was ended last still takes up what it had.
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

// measure takes in how the node is, and returns the thresholds to act upon.
func (m *Manager) measure(ctx context.Context) (Observation, []int) {
	o, err := m.cfg.Observe(ctx)
	if err != nil {
		m.cfg.Log.Warn("Failed to measure the node", "err", err) // what was measured counts
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

// limits ends the pods that use more storage than they may, and reports whether there were any.
func (m *Manager) limits(ctx context.Context, pods []*v1.Pod) bool {
	any := false
	for _, pod := range pods {
		if !Limited(pod) || Critical(pod) {
			continue
		}
		s, err := m.cfg.Usage(ctx, pod)
		if err != nil || s == nil {
			continue // it may not have started, or be gone
		}
		if why, signal := overLimit(pod, s); why != "" {
			m.evict(Eviction{Pod: pod, Message: why, Grace: atOnce, Signal: signal})
			any = true
		}
	}
	return any
}

// evictOne ends the pod that is to go first, and reports whether there is one.
func (m *Manager) evictOne(ctx context.Context, pods []*v1.Pod, t *Threshold, a Amount) bool {
	var list []Candidate
	for _, pod := range pods {
		if Critical(pod) {
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
