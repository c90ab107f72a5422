// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/worker"
)

// resizes holds the metrics of in-place pod resizes.
type resizes struct {
	requested, never, late *prometheus.CounterVec
	duration               *prometheus.HistogramVec
}

func newResizes(r prometheus.Registerer) resizes {
	s := resizes{
		requested: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_requested_resizes_total",
			Help: "[ALPHA] Number of requested resizes, counted at the container level."},
			[]string{"resource", "requirement", "operation"}),
		never: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_infeasible_resizes_total",
			Help: "[ALPHA] Number of infeasible resizes for pods."}, []string{"reason_detail"}),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_deferred_accepted_resizes_total",
			Help: "[ALPHA] Cumulative number of resizes that were accepted after being deferred."}, []string{"retry_trigger"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_resize_duration_milliseconds",
			Help: "[ALPHA] Duration in milliseconds to actuate a pod resize",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000,
				600000}}, []string{"success"}),
	}
	r.MustRegister(s.requested, s.never, s.late, s.duration)
	return s
}

func (s resizes) infeasible(detail string) { s.never.WithLabelValues(detail).Inc() }
func (s resizes) accepted(trigger string)  { s.late.WithLabelValues(trigger).Inc() }
func (s resizes) took(d time.Duration, err error) {
	s.duration.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(d.Milliseconds()))
}

// asked counts the requests and limits of containers that differ between two versions of a pod.
func (s resizes) asked(before, now *v1.Pod) {
	if before.Generation == now.Generation && before.Generation != 0 {
		return // the spec is unchanged
	}
	had := map[string]v1.ResourceRequirements{}
	for _, c := range slices.Concat(before.Spec.InitContainers, before.Spec.Containers) {
		had[c.Name] = c.Resources
	}
	for _, c := range slices.Concat(now.Spec.InitContainers, now.Spec.Containers) {
		old, ok := had[c.Name]
		if !ok {
			continue
		}
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			s.count(name, "requests", old.Requests[name], c.Resources.Requests[name])
			s.count(name, "limits", old.Limits[name], c.Resources.Limits[name])
		}
	}
}

func (s resizes) count(name v1.ResourceName, requirement string, old, now resource.Quantity) {
	var operation string
	switch {
	case now.Cmp(old) == 0:
		return
	case now.IsZero():
		operation = "remove"
	case old.IsZero():
		operation = "add"
	case now.Cmp(old) < 0:
		operation = "decrease"
	default:
		operation = "increase"
	}
	s.requested.WithLabelValues(string(name), requirement, operation).Inc()
}

// waitingResizes counts pending and unfinished resizes according to the conditions of pods.
type waitingResizes struct{ pods func() []*v1.Pod }

var (
	pendingResizes = prometheus.NewDesc("kubelet_pod_pending_resizes",
		"[ALPHA] Number of pending resizes for pods.", []string{"reason", "priority_bucket"}, nil)
	inProgressResizes = prometheus.NewDesc("kubelet_pod_in_progress_resizes",
		"[ALPHA] Number of in-progress resizes for pods.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*waitingResizes) Describe(ch chan<- *prometheus.Desc) {
	ch <- pendingResizes
	ch <- inProgressResizes
}

// Collect implements prometheus.Collector. It counts the resizes at each scrape.
func (w *waitingResizes) Collect(ch chan<- prometheus.Metric) {
	pending, inProgress := map[[2]string]int{}, 0
	for _, pod := range w.pods() {
		for _, c := range pod.Status.Conditions {
			switch c.Type {
			case v1.PodResizePending:
				pending[[2]string{strings.ToLower(c.Reason), priorityBucket(pod)}]++
			case v1.PodResizeInProgress:
				inProgress++
			}
		}
	}
	for labels, n := range pending {
		ch <- prometheus.MustNewConstMetric(pendingResizes, prometheus.GaugeValue, float64(n), labels[:]...)
	}
	ch <- prometheus.MustNewConstMetric(inProgressResizes, prometheus.GaugeValue, float64(inProgress))
}

// priorityBucket returns the name of the range in which the pod's priority is. The ranges are those of Kubernetes.
func priorityBucket(pod *v1.Pod) string {
	priority := int32(0)
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	switch {
	case priority >= 2_000_000_000:
		return "system-critical"
	case priority >= 100_000:
		return "high"
	case priority > 0:
		return "medium"
	case priority == 0:
		return "normal"
	case priority > -1000:
		return "low"
	}
	return "very-low"
}

// podObserver records what workers report about pods in metrics.
type podObserver struct {
	starts  starts
	resizes resizes
}

var _ worker.Observer = podObserver{}

// Started implements worker.Observer. It records how long a pod took to start.
func (o podObserver) Started(took time.Duration, phases map[worker.Phase]time.Duration) {
	o.starts.observe(took, phases)
}

// Updated implements worker.Observer. It counts the resizes that a new version of a pod requests.
func (o podObserver) Updated(before, now *v1.Pod) { o.resizes.asked(before, now) }

// Resized implements worker.Observer. It records how long a resize took and whether it succeeded.
func (o podObserver) Resized(took time.Duration, err error) { o.resizes.took(took, err) }
