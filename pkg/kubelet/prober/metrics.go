// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// metrics counts the results of probes, under the names of Kubernetes' metrics. It is not safe for
// concurrent use.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	pods     map[types.UID]types.NamespacedName // the pods that have metrics
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "prober_probe_total",
			Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result."},
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "prober_probe_duration_seconds",
			Help: "[ALPHA] Duration in seconds for a probe response."}, []string{"probe_type", "container", "pod", "namespace"}),
		pods: map[types.UID]types.NamespacedName{},
	}
	if r != nil {
		r.MustRegister(m.total, m.duration)
	}
	return m
}

func (m *metrics) answer(r *run, kind Kind, ok bool, took time.Duration) {
	result := "failed"
	if ok {
		result = "successful"
		m.duration.WithLabelValues(string(kind), r.spec.Name, r.pod.Name, r.pod.Namespace).Observe(took.Seconds())
	}
	m.total.WithLabelValues(string(kind), result, r.spec.Name, r.pod.Name, r.pod.Namespace, string(r.pod.UID)).Inc()
	m.pods[r.pod.UID] = types.NamespacedName{Namespace: r.pod.Namespace, Name: r.pod.Name}
}

// forget removes the metrics of a pod.
func (m *metrics) forget(uid types.UID) {
	name, ok := m.pods[uid]
	if !ok {
		return
	}
	delete(m.pods, uid)
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
	m.duration.DeletePartialMatch(prometheus.Labels{"namespace": name.Namespace, "pod": name.Name})
}
