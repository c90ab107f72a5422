// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"
)

// Values of the label reason, which says why a pod was deleted.
const (
	terminated   = "terminated"
	outOfService = "out-of-service"
	orphaned     = "orphaned"
	unscheduled  = "unscheduled"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts.
type metrics struct {
	deletions, failures *prometheus.CounterVec
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	const subsystem = "pod_gc_collector"
	auto := promauto.With(r)
	return &metrics{
		deletions: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "force_delete_pods_total",
			Help: "[ALPHA] Number of pods that are being forcefully deleted since the Pod GC Controller started.",
		}, []string{"namespace", "reason"}),
		failures: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "force_delete_pod_errors_total",
			Help: "[ALPHA] Number of errors encountered when forcefully deleting the pods since the Pod GC " +
				"Controller started.",
		}, []string{"namespace", "reason"}),
	}
}

// deleted counts an attempt to delete a pod, and returns err, the error of the attempt.
func (m *metrics) deleted(pod *v1.Pod, reason string, err error) error {
	m.deletions.WithLabelValues(pod.Namespace, reason).Inc()
	if err != nil {
		m.failures.WithLabelValues(pod.Namespace, reason).Inc()
	}
	return err
}
