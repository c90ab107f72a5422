// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of queues. Metrics of events, levels and errors are those of the library
// k8s.io/apiserver.
type metrics struct {
	waiting, bytes            *prometheus.GaugeVec
	spilled, dropped, retried *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "keelson_audit_" + name, Help: help}, []string{"plugin"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keelson_audit_" + name, Help: help},
			[]string{"plugin"})
	}
	m := &metrics{
		waiting: gauge("queue_events", "Audit events that wait in memory for the backend."),
		bytes:   gauge("spill_bytes", "Bytes of audit events that wait on disk for the backend."),
		spilled: counter("spilled_events_total", "Audit events that did not fit into memory and were put on disk."),
		dropped: counter("dropped_events_total",
			"Audit events that were lost: there was no room for them, they could not be read from disk, or the backend "+
				"rejected them."),
		retried: counter("retries_total", "Batches of audit events that had to be sent again."),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.waiting, m.bytes, m.spilled, m.dropped, m.retried} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// queueMetrics are the metrics of one queue of audit events.
type queueMetrics struct {
	waiting, bytes            prometheus.Gauge
	spilled, dropped, retried prometheus.Counter
}

func (m *metrics) of(plugin string) queueMetrics {
	return queueMetrics{
		waiting: m.waiting.WithLabelValues(plugin), bytes: m.bytes.WithLabelValues(plugin),
		spilled: m.spilled.WithLabelValues(plugin), dropped: m.dropped.WithLabelValues(plugin),
		retried: m.retried.WithLabelValues(plugin),
	}
}
