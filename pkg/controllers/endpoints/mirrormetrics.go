// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	discoveryv1 "k8s.io/api/discovery/v1"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// mirrorMetrics are the metrics of the mirroring controller. They have Kubernetes' names, buckets and help texts.
type mirrorMetrics struct {
	added, updated, removed, skipped, duration prometheus.Histogram
	endpoints, slices, desired                 prometheus.Gauge
	changes                                    *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]mirrorCounts // by key of the Endpoints
}

// mirrorCounts are the numbers of one Endpoints object. The gauges are the sums of these numbers over all
// Endpoints.
type mirrorCounts struct{ endpoints, slices, desired int }

// newMirrorMetrics registers the metrics. r may be nil.
func newMirrorMetrics(r prometheus.Registerer) *mirrorMetrics {
	const subsystem = "endpoint_slice_mirroring_controller"
	auto := promauto.With(r)
	histogram := func(name, help string) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(2, 2, 15)})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help})
	}
	return &mirrorMetrics{
		known:   map[string]mirrorCounts{},
		added:   histogram("endpoints_added_per_sync", "[ALPHA] Number of endpoints added on each Endpoints sync"),
		updated: histogram("endpoints_updated_per_sync", "[ALPHA] Number of endpoints updated on each Endpoints sync"),
		removed: histogram("endpoints_removed_per_sync", "[ALPHA] Number of endpoints removed on each Endpoints sync"),
		skipped: histogram("addresses_skipped_per_sync", "[ALPHA] Number of addresses skipped on each Endpoints sync "+
			"due to being invalid or exceeding MaxEndpointsPerSubset"),
		duration: auto.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: "endpoints_sync_duration",
			Help:    "[ALPHA] Duration of syncEndpoints() in seconds",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		endpoints: gauge("endpoints_desired", "[ALPHA] Number of endpoints desired"),
		slices:    gauge("num_endpoint_slices", "[ALPHA] Number of EndpointSlices"),
		desired: gauge("desired_endpoint_slices",
			"[ALPHA] Number of EndpointSlices that would exist with perfect endpoint allocation"),
		changes: auto.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "changes",
			Help: "[ALPHA] Number of EndpointSlice changes"}, []string{"operation"}),
	}
}

// planned records the changes that a sync is about to make.
func (m *mirrorMetrics) planned(key string, groups []*group, existing []*discoveryv1.EndpointSlice, todo mirrorChanges,
	skipped int) {
	added, updated, removed := compare(groups, existing)
	m.added.Observe(float64(added))
	m.updated.Observe(float64(updated))
	m.removed.Observe(float64(removed))
	m.skipped.Observe(float64(skipped))
	now := mirrorCounts{slices: len(existing) + len(todo.create) - len(todo.remove), desired: len(groups)}
	for _, g := range groups {
		now.endpoints += len(g.endpoints)
	}
	m.set(key, now)
}

// set updates the gauges with the counts of one Endpoints object. For an object that is not
// mirrored, the counts are zero.
func (m *mirrorMetrics) set(key string, now mirrorCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.known[key]
	delete(m.known, key)
	if now != (mirrorCounts{}) {
		m.known[key] = now
	}
	m.endpoints.Add(float64(now.endpoints - was.endpoints))
	m.slices.Add(float64(now.slices - was.slices))
	m.desired.Add(float64(now.desired - was.desired))
}

// compare returns how many endpoints of the groups are missing in the existing slices, how many
// differ, and how many endpoints in the slices are in no group.
func compare(groups []*group, existing []*discoveryv1.EndpointSlice) (added, updated, removed int) {
	have := map[groupKey]endpointsliceutil.EndpointSet{}
	for _, s := range existing {
		k := keyOf(s.AddressType, s.Ports)
		if have[k] == nil {
			have[k] = endpointsliceutil.EndpointSet{}
		}
		for i := range s.Endpoints {
			have[k].Insert(&s.Endpoints[i])
		}
	}
	for _, g := range groups {
		set := have[keyOf(g.family, g.ports)]
		for i := range g.endpoints {
			switch e := set.Get(&g.endpoints[i]); {
			case e == nil:
				added++
			case !endpointsliceutil.EndpointsEqualBeyondHash(e, &g.endpoints[i]):
				updated++
			}
			set.Delete(&g.endpoints[i])
		}
	}
	for _, set := range have {
		removed += len(set)
	}
	return added, updated, removed
}
