// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// provisionOperation is the label of the only operation that is measured: provisioners delete
// volumes by themselves.
const provisionOperation = "provision"

// metrics are Kubernetes' metrics of operations on volumes and of claims that get a class.
type metrics struct {
	total               *prometheus.HistogramVec
	errors              *prometheus.CounterVec
	classes, unassigned prometheus.Counter

	mu sync.Mutex
	// begun is when claims were assigned to provisioners.
	begun map[types.UID]provisioning
}

type provisioning struct {
	provisioner string
	at          time.Time
}

// newMetrics registers the metrics. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto, labels := promauto.With(r), []string{"plugin_name", "operation_name"}
	return &metrics{
		begun: map[types.UID]provisioning{},
		total: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "[BETA] Storage operation end to end duration in seconds",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, labels),
		errors: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "volume_operation_errors_total", Help: "[ALPHA] Total volume operation errors",
		}, labels),
		classes: auto.NewCounter(prometheus.CounterOpts{
			Name: "retroactive_storageclass_total",
			Help: "[ALPHA] Total number of retroactive StorageClass assignments to persistent volume claim",
		}),
		unassigned: auto.NewCounter(prometheus.CounterOpts{
			Name: "retroactive_storageclass_errors_total",
			Help: "[ALPHA] Total number of failed retroactive StorageClass assignments to persistent volume claim",
		}),
	}
}

// provision notes that a claim waits for a provisioner.
func (m *metrics) provision(claim *v1.PersistentVolumeClaim, provisioner string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.begun[claim.UID]; !known {
		m.begun[claim.UID] = provisioning{provisioner, now}
	}
}

// bound records the time since a claim was assigned to a provisioner, if it was.
func (m *metrics) bound(claim *v1.PersistentVolumeClaim, now time.Time) {
	m.mu.Lock()
	p, known := m.begun[claim.UID]
	delete(m.begun, claim.UID)
	m.mu.Unlock()
	if known {
		m.total.WithLabelValues(p.provisioner, provisionOperation).Observe(now.Sub(p.at).Seconds())
	}
}

// forget forgets a claim that was deleted.
func (m *metrics) forget(claim *v1.PersistentVolumeClaim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.begun, claim.UID)
}

// failed counts a claim that could not be assigned to a provisioner.
func (m *metrics) failed(provisioner string) {
	m.errors.WithLabelValues(provisioner, provisionOperation).Inc()
}

// gotClass counts a claim to which the default class was assigned, or could not be.
func (m *metrics) gotClass(err error) {
	m.classes.Inc()
	if err != nil {
		m.unassigned.Inc()
	}
}
