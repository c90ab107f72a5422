// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"keelson.dev/keelson/pkg/daemon/scrape"
)

// resettable returns metrics relative to their last reset. Counters belong to other packages, so a
// reset does not change them: Gather subtracts the values that they had at the reset. Gauges are
// returned as they are.
type resettable struct {
	from prometheus.Gatherer
	past atomic.Pointer[map[string]*dto.Metric]
}

// ServeHTTP serves the metrics. DELETE resets them.
func (m *resettable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodDelete {
		scrape.Handler(m).ServeHTTP(w, r)
		return
	}
	if err := m.reset(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "metrics reset\n")
}

func (m *resettable) reset() error {
	families, err := m.from.Gather()
	if err != nil {
		return err
	}
	past := map[string]*dto.Metric{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			if series.GetCounter() != nil || series.GetHistogram() != nil {
				past[seriesName(f, series)] = series
			}
		}
	}
	m.past.Store(&past)
	return nil
}

// Gather implements prometheus.Gatherer. It omits series with labels that have counted nothing
// since the reset.
func (m *resettable) Gather() ([]*dto.MetricFamily, error) {
	families, err := m.from.Gather()
	past := m.past.Load()
	if err != nil || past == nil {
		return families, err
	}
	kept := families[:0]
	for _, f := range families {
		series := f.Metric[:0]
		for _, s := range f.GetMetric() {
			was := (*past)[seriesName(f, s)]
			if was == nil || takeOff(s, was) || len(s.GetLabel()) == 0 {
				series = append(series, s)
			}
		}
		if f.Metric = series; len(series) > 0 {
			kept = append(kept, f)
		}
	}
	return kept, nil
}

// takeOff subtracts the earlier values of a metric from its present ones, and reports whether any
// result is not zero.
func takeOff(now, was *dto.Metric) bool {
	if c := now.GetCounter(); c != nil {
		left := c.GetValue() - was.GetCounter().GetValue()
		c.Value = &left
		return left != 0
	}
	h, old := now.GetHistogram(), was.GetHistogram()
	count, sum := h.GetSampleCount()-old.GetSampleCount(), h.GetSampleSum()-old.GetSampleSum()
	h.SampleCount, h.SampleSum = &count, &sum
	for i, b := range h.GetBucket() {
		if i < len(old.GetBucket()) {
			left := b.GetCumulativeCount() - old.GetBucket()[i].GetCumulativeCount()
			b.CumulativeCount = &left
		}
	}
	return count != 0
}

func seriesName(f *dto.MetricFamily, m *dto.Metric) string {
	var b strings.Builder
	b.WriteString(f.GetName())
	for _, l := range m.GetLabel() {
		b.WriteByte(0)
		b.WriteString(l.GetName())
		b.WriteByte(0)
		b.WriteString(l.GetValue())
	}
	return b.String()
}
