// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"keelson.dev/keelson/pkg/kubelet/worker"
)

// TestPhases checks that time that belongs to no phase counts as the kubelet's own time.
func TestPhases(t *testing.T) {
	s := newStarts(prometheus.NewRegistry())
	s.observe(200*time.Millisecond, map[worker.Phase]time.Duration{
		worker.PhaseVolumes: 5 * time.Millisecond, worker.PhaseSandbox: 120 * time.Millisecond,
		worker.PhaseImages: 10 * time.Millisecond,
		worker.PhaseCreate: 20 * time.Millisecond, worker.PhaseStart: 30 * time.Millisecond,
	})
	for phase, want := range map[string]float64{own: 0.02, "volumes": 0.005, "sandbox": 0.12, "images": 0.01,
		"create": 0.02, "start": 0.03, "hooks": 0} {
		m := &dto.Metric{}
		if err := s.phases.WithLabelValues(phase).(prometheus.Metric).Write(m); err != nil {
			t.Fatal(err)
		}
		if got := m.Histogram.GetSampleSum(); got < want-1e-9 || got > want+1e-9 || m.Histogram.GetSampleCount() != 1 {
			t.Errorf("%s: %v, want %v", phase, got, want)
		}
	}
}
