// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	appsv1 "k8s.io/api/apps/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// metrics are the controller's metrics. They have Kubernetes' names, labels and help texts.
type metrics struct {
	most, unavailable *prometheus.GaugeVec
	skip              controller.StaleSkips
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Subsystem: "statefulset_controller", Name: name, Help: help},
			[]string{"statefulset_namespace", "statefulset_name", "pod_management_policy"})
	}
	return &metrics{
		most: gauge("statefulset_max_unavailable",
			"[ALPHA] Maximum number of unavailable pods allowed during StatefulSet rolling updates"),
		unavailable: gauge("statefulset_unavailable_replicas", "[ALPHA] Current number of unavailable pods in StatefulSet"),
		skip:        controller.NewStaleSkips(r, "statefulset_controller", "StatefulSet"),
	}
}

// recordPlan sets the metrics about unavailable pods of a StatefulSet from its plan.
func (m *metrics) recordPlan(set *appsv1.StatefulSet, p plan) {
	labels := []string{set.Namespace, set.Name, string(set.Spec.PodManagementPolicy)}
	m.most.WithLabelValues(labels...).Set(float64(p.most))
	if p.update {
		m.unavailable.WithLabelValues(labels...).Set(float64(p.unavailable))
	}
}

// forget removes the metrics of a StatefulSet, because it was deleted.
func (m *metrics) forget(namespace, name string) {
	labels := prometheus.Labels{"statefulset_namespace": namespace, "statefulset_name": name}
	m.most.DeletePartialMatch(labels)
	m.unavailable.DeletePartialMatch(labels)
}
