// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package filters

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of filters, with Kubernetes' names.
type Metrics struct {
	rejected *prometheus.CounterVec
}

// NewMetrics registers the metrics with r. If r is nil, they are not exported.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_dropped_requests_total",
		Help: "Requests refused because too many were in flight.",
	}, []string{"request_kind"})}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m.rejected)
}

func (m *Metrics) drop(kind string) {
	if m != nil {
		m.rejected.WithLabelValues(kind).Inc()
	}
}
