// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/scheduler/queue"
)

// Results of an attempt, as Kubernetes names them.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

// metrics has the metrics, with upstream's names.
type metrics struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      prometheus.Histogram
	victims  prometheus.Counter
	claims   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, q *queue.Queue) (*metrics, error) {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total", Help: "Attempts to schedule pods, by result and profile.",
		}, []string{"result", "profile"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Time of an attempt, binding included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		}, []string{"result", "profile"}),
		sli: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "scheduler_pod_scheduling_sli_duration_seconds",
			Help:    "Time from a pod's coming to the queue until it is bound.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20),
		}),
		victims: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_victims_total", Help: "Pods evicted for others of higher priority.",
		}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_resourceclaim_creates_total",
			Help: "Claims for extended resources that were to be made, by how that went.",
		}, []string{"status"}),
	}
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.sli, m.victims, m.claims,
		pending{q, prometheus.NewDesc(
			"scheduler_pending_pods", "Pods in the queue, by its part.", []string{"queue"}, nil)}} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) attempt(result, profile string, d time.Duration) {
	m.attempts.WithLabelValues(result, profile).Inc()
	m.duration.WithLabelValues(result, profile).Observe(d.Seconds())
}

func (m *metrics) bound(profile string, attempt, total time.Duration) {
	m.attempt(resultScheduled, profile, attempt)
	m.sli.Observe(total.Seconds())
}

// pending is a collector that counts the pods in the queue when it is scraped.
type pending struct {
	queue *queue.Queue
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p pending) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc }

// Collect implements prometheus.Collector.
func (p pending) Collect(ch chan<- prometheus.Metric) {
	active, backoff, unschedulable, gated := p.queue.Lengths()
	for part, n := range map[string]int{"active": active, "backoff": backoff, "unschedulable": unschedulable,
		"gated": gated} {
		ch <- prometheus.MustNewConstMetric(p.desc, prometheus.GaugeValue, float64(n), part)
	}
}
