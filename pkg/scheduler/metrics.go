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

// Results of an attempt to schedule a pod, as values of Kubernetes' label "result".
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

// entityPod is the value of Kubernetes' label "type" for single pods. Pods of a gang count as single
// pods too.
const entityPod = "pod"

// maxAttemptsLabel is the number of attempts from which on the label "attempts" has the same value for
// all pods: this number and a plus sign.
const maxAttemptsLabel = 15

// metrics has the scheduler's metrics. Names, types, labels and buckets are the same as in
// Kubernetes, except for metrics whose name begins with keelson_.
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
	devices     *deviceMetrics
	// binding is the gauge of pods that are being bound. It corresponds to Kubernetes' number of
	// binding goroutines, so each pod counts, although one request binds several pods.
	binding func() prometheus.Gauge

	plugins  *prometheus.HistogramVec
	points   map[string]*times                             // by profile name
	handling func(event string) func() prometheus.Observer // see Scheduler.timed

	results       sync.Map                                                  // maps attemptLabels to *attemptMetrics
	sliByAttempts [maxAttemptsLabel + 1]atomic.Pointer[prometheus.Observer] // histograms of sli, by number of attempts
}

// attemptLabels has the label values of an attempt's metrics.
type attemptLabels struct{ result, profile string }

// attemptMetrics caches the metrics for one attemptLabels, because looking up a labelled metric
// costs more than incrementing it.
type attemptMetrics struct {
	attempts prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(r prometheus.Registerer, s *Scheduler) (*metrics, error) {
	attempt := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total",
			Help: "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be " +
				"scheduled, while 'error' means an internal scheduler problem.",
		}, []string{"result", "profile"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scheduler_scheduling_attempt_duration_seconds",
			Help:    "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
			Buckets: attempt,
		}, []string{"result", "profile"}),
		algorithm: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "scheduler_scheduling_algorithm_duration_seconds",
			Help:    "[BETA] Scheduling algorithm latency in seconds",
			Buckets: attempt,
		}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds",
			Help: "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and " +
				"might involve multiple scheduling attempts.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"attempts"}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "scheduler_pod_scheduling_attempts",
			Help:    "[STABLE] Number of attempts to successfully schedule a pod.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		flushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_pod_scheduled_after_flush_total",
			Help: "[ALPHA] Number of pods that were successfully scheduled after being flushed from unschedulableEntities " +
				"due to timeout.",
		}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total", Help: "[STABLE] Total preemption attempts in the cluster till now",
		}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Help: "[STABLE] Number of selected preemption victims",
			Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keelson_scheduler_evictions_total", Help: "Pods evicted for pods of higher priority.",
		}),
		plugins: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scheduler_plugin_execution_duration_seconds",
			Help:    "[BETA] Duration for running a plugin at a specific extension point.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 1.5, 20),
		}, []string{"plugin", "extension_point", "status"}),
		points:  map[string]*times{},
		devices: newDeviceMetrics(),
	}
	handling := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "scheduler_event_handling_duration_seconds", Help: "[ALPHA] Event handling latency in seconds.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12),
	}, []string{"event"})
	m.handling = func(event string) func() prometheus.Observer {
		return sync.OnceValue(func() prometheus.Observer { return handling.WithLabelValues(event) })
	}
	goroutines := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "scheduler_goroutines",
		Help: "[BETA] Number of running goroutines split by the work they do such as binding.",
	}, []string{"operation"})
	m.binding = sync.OnceValue(func() prometheus.Gauge { return goroutines.WithLabelValues("binding") })
	points := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "scheduler_framework_extension_point_duration_seconds",
		Help:    "[STABLE] Latency for running all plugins of a specific extension point.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 12),
	}, []string{"extension_point", "status", "profile"})
	if s.cfg.Profiles != nil {
		for name := range s.cfg.Profiles.Profiles {
			m.points[name] = newTimes(func(point, code string) prometheus.Observer {
				return points.WithLabelValues(point, code, name)
			})
		}
	}
	for _, c := range []prometheus.Collector{m.attempts, m.duration, m.algorithm, m.sli, m.tries, m.flushed,
		m.preemptions, m.victims, m.evictions, m.plugins, handling, goroutines, points,
		m.devices.creates, m.devices.allocations, m.devices.waits,
		evaluations{s, prometheus.NewDesc("scheduler_plugin_evaluation_total",
			"[BETA] Number of attempts to schedule pods by each plugin and the extension point (available only in "+
				"PreFilter, Filter, PreScore, and Score).", []string{"plugin", "extension_point", "profile"}, nil)},
		newQueued(s.queue),
		sizes{s, prometheus.NewDesc("scheduler_cache_size",
			"[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.", []string{"type"}, nil)},
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

// bound records that a pod was bound. attempt is the duration of the last attempt, and total the
// time since the pod's first attempt.
func (m *metrics) bound(profile string, item *queue.Item, attempt, total time.Duration) {
	m.attempt(resultScheduled, profile, attempt)
	m.tries.Observe(float64(item.Attempts))
	m.sliOf(item.Attempts).Observe(total.Seconds())
	if item.Flushed {
		m.flushed.Inc()
	}
}

// sliOf returns the histogram of sli for a number of attempts. It is created on first use, so that
// a scrape shows no empty series.
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

// queued is a collector that counts the pods in the queue when it is scraped.
type queued struct {
	queue                               *queue.Queue
	pending, rejected, popped, incoming *prometheus.Desc
	entities, incomingEntities          *prometheus.Desc
}

func newQueued(q *queue.Queue) queued {
	return queued{queue: q,
		pending: prometheus.NewDesc("scheduler_pending_pods",
			"[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means "+
				"number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler "+
				"attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never "+
				"attempted to schedule because they are gated.", []string{"queue"}, nil),
		rejected: prometheus.NewDesc("scheduler_unschedulable_pods",
			"[BETA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all "+
				"plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
			[]string{"plugin", "profile"}, nil),
		popped: prometheus.NewDesc("scheduler_inflight_events",
			"[ALPHA] Number of events currently tracked in the scheduling queue.", []string{"event"}, nil),
		incoming: prometheus.NewDesc("scheduler_queue_incoming_pods_total",
			"[STABLE] Number of pods added to scheduling queues by event and queue type.", []string{"queue", "event"}, nil),
		entities: prometheus.NewDesc("scheduler_queued_entities",
			"[ALPHA] Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that are "+
				"not members of any podgroup) by the queue type. 'active' means number of entities in activeQ; 'backoff' "+
				"means number of entities in backoffQ; 'unschedulable' means number of entities in unschedulableEntities "+
				"that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable entities that "+
				"the scheduler never attempted to schedule because they are gated.", []string{"queue", "type"}, nil),
		incomingEntities: prometheus.NewDesc("scheduler_queue_incoming_entities_total",
			"[ALPHA] Number of scheduling entities added to scheduling queues by event, queue type, and entity type. "+
				"Entity types are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'.",
			[]string{"queue", "event", "type"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (q queued) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{q.pending, q.rejected, q.popped, q.incoming, q.entities, q.incomingEntities} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (q queued) Collect(ch chan<- prometheus.Metric) {
	n := q.queue.Counts()
	gauge := func(desc *prometheus.Desc, pods int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(pods), labels...)
	}
	for place, pods := range map[string]int{
		"active": n.Active, "backoff": n.Backoff, "unschedulable": n.Unschedulable, "gated": n.Gated,
	} {
		gauge(q.pending, pods, place)
		gauge(q.entities, pods, place, entityPod)
	}
	// Kubernetes also reports the events that its queue stores while pods are in flight. Keelson's
	// queue stores no such list, so only the pods in flight are reported.
	gauge(q.popped, n.Popped, "PodPopped")
	for by, pods := range n.Rejected {
		gauge(q.rejected, pods, by.Plugin, by.Profile)
	}
	q.queue.Incoming(func(place string, why queue.Cause, pods uint64) {
		ch <- prometheus.MustNewConstMetric(q.incoming, prometheus.CounterValue, float64(pods), place, why.String())
		ch <- prometheus.MustNewConstMetric(q.incomingEntities, prometheus.CounterValue, float64(pods), place, why.String(),
			entityPod)
	})
}

// sizes is a collector that counts the nodes and pods in the scheduler's state when it is scraped.
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
