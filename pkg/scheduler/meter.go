// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

const (
	// sampleEvery is the sampling interval of plugin timing: plugins are timed in one of
	// sampleEvery evaluations, as in Kubernetes.
	sampleEvery = 10
	// maxTimed is how many calls of plugins are timed in one evaluation. An evaluation of all nodes
	// would otherwise spend more time on reading the clock than on plugins.
	maxTimed = 256
)

// meter counts and times plugin calls of evaluations. Scheduler.mu guards it. The counts are plain
// numbers that a collector reads, because incrementing several atomic counters would take longer
// than the evaluation of a node.
type meter struct {
	clock    clock.Clock // nil if the meter is off
	metrics  *metrics
	profiles map[*profile.Profile]*profileMeter
	last     time.Time // time of the last call of lap or begin
	begun    uint64    // number of evaluations
	left     int       // number of calls that may still be timed in the current evaluation
}

// profileMeter has the meters of a profile's plugins, in the order of the plugins in the profile.
type profileMeter struct {
	points                                           *times // durations of the extension points
	nodeFilters, cellFilters, nodeScores, cellScores []*pluginMeter
	plugins                                          map[string]*pluginMeter
}

// pluginMeter has the call counts and durations of one plugin in one profile.
type pluginMeter struct {
	calls [points]uint64
	times *times
}

// newMeter returns a meter. If c is nil, the meter is off, and m may be nil.
func newMeter(c clock.Clock, m *metrics) *meter {
	return &meter{clock: c, metrics: m, profiles: map[*profile.Profile]*profileMeter{}}
}

// of returns the meter of a profile. It creates the meter on first use.
func (m *meter) of(p *profile.Profile) *profileMeter {
	if known := m.profiles[p]; known != nil {
		return known
	}
	out := &profileMeter{plugins: map[string]*pluginMeter{}}
	if m.metrics != nil {
		out.points = m.metrics.points[p.Name]
	}
	plugin := func(name string) *pluginMeter {
		if out.plugins[name] == nil {
			out.plugins[name] = &pluginMeter{}
			if m.metrics != nil {
				out.plugins[name].times = newTimes(func(point, code string) prometheus.Observer {
					return m.metrics.plugins.WithLabelValues(name, point, code)
				})
			}
		}
		return out.plugins[name]
	}
	for _, l := range []struct {
		filters []profile.Filter
		scores  []profile.Score
		into    *[]*pluginMeter
	}{
		{filters: p.NodeFilters, into: &out.nodeFilters}, {filters: p.CellFilters, into: &out.cellFilters},
		{scores: p.NodeScores, into: &out.nodeScores}, {scores: p.CellScores, into: &out.cellScores},
	} {
		for i := range l.filters {
			*l.into = append(*l.into, plugin(l.filters[i].Plugin))
		}
		for i := range l.scores {
			*l.into = append(*l.into, plugin(l.scores[i].Plugin))
		}
	}
	m.profiles[p] = out
	return out
}

// begin starts an evaluation, and decides whether plugins are timed in it.
func (m *meter) begin() {
	if m.clock == nil {
		return
	}
	m.left = 0
	if m.begun%sampleEvery == 0 {
		m.left = maxTimed
	}
	m.begun++
	m.last = m.clock.Now()
}

// lap returns the time since the last call of lap or begin.
func (m *meter) lap() time.Duration {
	if m.clock == nil {
		return 0
	}
	now := m.clock.Now()
	took := now.Sub(m.last)
	m.last = now
	return took
}

// timed reports whether the next plugin call is to be timed.
func (m *meter) timed() bool { return m.left > 0 }

// compileFilter calls a plugin's Compile, and counts and times the call.
func (m *meter) compileFilter(by *pluginMeter, plugin *profile.Filter, v *view, pod *scheduling.Pod) (profile.Compiled,
	*scheduling.Status) {
	by.calls[preFilter]++
	if !m.timed() {
		return plugin.Compile(v, pod)
	}
	m.left--
	start := m.clock.Now()
	f, st := plugin.Compile(v, pod)
	by.times.observe(preFilter, codeOf(st), m.clock.Since(start))
	return f, st
}

// compileScorer calls the Compile of a scoring plugin, and counts and times the call. ok is false
// if the scorer gives all nodes the same score.
func (m *meter) compileScorer(by *pluginMeter, p *profile.Score, v *view, pod *scheduling.Pod) (s weightedScorer,
	ok bool) {
	by.calls[preScore]++
	timed, start := m.timed(), time.Time{}
	if timed {
		m.left--
		start = m.clock.Now()
	}
	scorer := p.Compile(v, pod)
	if timed {
		by.times.observe(preScore, 0, m.clock.Since(start))
	}
	s = weightedScorer{Scorer: scorer, plugin: p.Plugin, weight: p.Weight}
	return s, scorer.Score != nil || scorer.ScoreAt != nil
}

// first does the same as the package's function first, and times each filter. The result at is the
// index of the filter that rejected the node, or len(filters).
func (m *meter) first(filters []scheduling.Filter, by []*pluginMeter, n *scheduling.Node) (at int,
	st *scheduling.Status) {
	for i := range filters {
		start := m.clock.Now()
		st := check(&filters[i], n)
		by[i].times.observe(filter, codeOf(st), m.clock.Since(start))
		m.left--
		if st != nil {
			return i, st
		}
	}
	return len(filters), nil
}

// evaluations is a collector of how often plugins were called.
type evaluations struct {
	s    *Scheduler
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c evaluations) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c evaluations) Collect(ch chan<- prometheus.Metric) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for p, m := range c.s.evaluator.meter.profiles {
		for name, plugin := range m.plugins {
			for at, n := range plugin.calls {
				if n > 0 {
					ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(n), name,
						point(at).String(), p.Name)
				}
			}
		}
	}
}
