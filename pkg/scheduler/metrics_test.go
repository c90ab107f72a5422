// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/queue"
)

// TestBoundMetrics checks the metrics of pods that were bound after different numbers of attempts.
func TestBoundMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := newMetrics(r, &Scheduler{
		queue: queue.New(queue.Config{}), view: &view{Cell: cell.New()}, evaluator: newEvaluator()})
	if err != nil {
		t.Fatal(err)
	}
	for _, attempts := range []int{1, 15, 40} {
		m.bound("p", &queue.Item{Attempts: attempts, Flushed: attempts == 40}, time.Second, time.Minute)
	}
	m.attempt(resultError, "p", time.Second)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			name := f.GetName()
			for _, l := range x.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = x.GetCounter().GetValue() + float64(x.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"scheduler_schedule_attempts_total p scheduled":             3,
		"scheduler_schedule_attempts_total p error":                 1,
		"scheduler_scheduling_attempt_duration_seconds p scheduled": 3,
		"scheduler_pod_scheduling_attempts":                         3,
		"scheduler_pod_scheduling_sli_duration_seconds 1":           1,
		"scheduler_pod_scheduling_sli_duration_seconds 15+":         2,
		"scheduler_pod_scheduled_after_flush_total":                 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
