// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

func TestPullsBySize(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.NewNode(r)
	for _, size := range []uint64{0, 1, 10 << 20, 10<<20 + 1, 1 << 30, 3 << 30, 200 << 30} {
		m.Pulled(size, 2*time.Second)
	}
	series := func(label string) string {
		return `kubelet_image_pull_duration_seconds_count{image_size_in_bytes="` + label + `"}`
	}
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		series("N/A"): 1, series("0-10MB"): 2, series("10MB-100MB"): 1, series("500MB-1GB"): 1,
		series("1GB-5GB"): 1, series("GT100GB"): 1,
		`kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="0-10MB"}`: 4,
	})
}

func TestListings(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metrics.NewNode(r)
	at := time.Unix(1000, 0)
	m.Listed(time.Time{}, at, at.Add(time.Second))
	m.Listed(at, at.Add(10*time.Second), at.Add(12*time.Second))
	m.Stream(true)
	m.Stream(false)
	m.Event(-time.Second) // negative, as if the clock had been set back
	m.Event(time.Second)
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		"kubelet_pleg_relist_duration_seconds_count": 2, "kubelet_pleg_relist_duration_seconds_sum": 3,
		"kubelet_pleg_relist_interval_seconds_count": 1, "kubelet_pleg_relist_interval_seconds_sum": 10,
		"kubelet_pleg_last_seen_seconds":                1010,
		"kubelet_evented_pleg_connection_success_count": 1, "kubelet_evented_pleg_connection_error_count": 1,
		"kubelet_evented_pleg_connection_latency_seconds_count": 2, "kubelet_evented_pleg_connection_latency_seconds_sum": 1,
	})
}
