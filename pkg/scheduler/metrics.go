// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
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

// maxAttemptsLabel is the first number of attempts that shares its label with all larger numbers.
const maxAttemptsLabel = 15

// metrics has the metrics. Names, types, labels and buckets are Kubernetes', except for those that
// begin with keelson_.
type metrics struct {
	attempts    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	algorithm   prometheus.Histogram
	sli         *prometheus.HistogramVec
	tries       prometheus.Histogram
	flushed     prometheus.Counter
	preemptions prometheus.Counter
	victims     prometheus.Histogram
	evictions   prometheus.Counter
	claims      *prometheus.CounterVec

	results       sync.Map                                                  // from attemptLabels to *attemptMetrics
	sliByAttempts [maxAttemptsLabel + 1]atomic.Pointer[prometheus.Observer] // children of sli
}

// attemptLabels has the labels of an attempt.
type attemptLabels struct{ result, profile string }

// attemptMetrics has the metrics of attempts with the same labels. Finding a child of a vector
// costs more than counting.
type attemptMetrics struct {
	attempts prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(r prometheus.Registerer, s *Scheduler) (*metrics, error) {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total", Help: "Attempts to schedule pods, by result and profile.",
		}, []string{"result", "profile"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scheduler_scheduling_attempt_duration_seconds",
			Help:    "Time of an attempt to schedule a pod, including the binding.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"result", "profile"}),
		algorithm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "scheduler_scheduling_algorithm_duration_seconds",
			Help:    "Time of the decision about a pod, without the binding.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scheduler_pod_scheduling_sli_duration_seconds",
			Help:    "Time from a pod's first attempt until the pod is bound, by the number of attempts.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"attempts"}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Help: "Attempts that a pod needed until it was bound.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		flushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_pod_scheduled_after_flush_total",
			Help: "Pods that were bound after they were retried because they had been unschedulable for too long.",
		}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total", Help: "Attempts to find pods to evict for another pod.",
		}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Help: "Pods selected to be evicted for one pod.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keelson_scheduler_evictions_total", Help: "Pods evicted for pods of higher priority.",
		}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_resourceclaim_creates_total",
			Help: "Requests to create claims for extended resources, by status.",
		}, []string{"status"}),
	}
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.algorithm, m.sli, m.tries, m.flushed,
		m.preemptions, m.victims, m.evictions, m.claims,
		pending{s.queue, prometheus.NewDesc(
			"scheduler_pending_pods", "Pods in the queue, by its part.", []string{"queue"}, nil)},
		sizes{s, prometheus.NewDesc("scheduler_cache_size",
			"Nodes, pods on nodes, and pods whose binding is not confirmed yet.", []string{"type"}, nil)},
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) attempt(result, profile string, d time.Duration) {
	key := attemptLabels{result, profile}
	found, ok := m.results.Load(key)
	if !ok {
		found, _ = m.results.LoadOrStore(key, &attemptMetrics{
			m.attempts.WithLabelValues(result, profile), m.duration.WithLabelValues(result, profile)})
	}
	o := found.(*attemptMetrics)
	o.attempts.Inc()
	o.duration.Observe(d.Seconds())
}

// bound records that a pod was bound. total is the time since its first attempt.
func (m *metrics) bound(profile string, item *queue.Item, attempt, total time.Duration) {
	m.attempt(resultScheduled, profile, attempt)
	m.tries.Observe(float64(item.Attempts))
	m.sliOf(item.Attempts).Observe(total.Seconds())
	if item.Flushed {
		m.flushed.Inc()
	}
}

// sliOf returns the child of sli for a number of attempts. It is created on first use, so that a
// scrape shows no empty series.
func (m *metrics) sliOf(attempts int) prometheus.Observer {
	i := min(attempts, maxAttemptsLabel)
	if o := m.sliByAttempts[i].Load(); o != nil {
		return *o
	}
	label := strconv.Itoa(i)
	if i == maxAttemptsLabel {
		label += "+"
	}
	o := m.sli.WithLabelValues(label)
	m.sliByAttempts[i].Store(&o)
	return o
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

// sizes is a collector that counts the nodes and pods in the cell when it is scraped.
type sizes struct {
	s    *Scheduler
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c sizes) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c sizes) Collect(ch chan<- prometheus.Metric) {
	c.s.mu.Lock()
	nodes, pods, assumed := c.s.view.Sizes()
	c.s.mu.Unlock()
	for kind, n := range map[string]int{"nodes": nodes, "pods": pods, "assumed_pods": assumed} {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), kind)
	}
}
