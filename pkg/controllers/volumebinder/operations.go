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

// provisionOperation is the value of the label operation_name. Only this operation is measured,
// because provisioners delete volumes without this controller.
const provisionOperation = "provision"

// metrics are the metrics of provisioning and of claims to which the default StorageClass is
// assigned. They have Kubernetes' names.
type metrics struct {
	total               *prometheus.HistogramVec
	errors              *prometheus.CounterVec
	classes, unassigned prometheus.Counter

	mu sync.Mutex
	// begun contains the claims that wait for a provisioner, by UID.
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

// provision records that a claim was assigned to a provisioner now, unless it was assigned before.
func (m *metrics) provision(claim *v1.PersistentVolumeClaim, provisioner string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.begun[claim.UID]; !known {
		m.begun[claim.UID] = provisioning{provisioner, now}
	}
}

// bound records the time that the provisioning of a claim took, if the claim was assigned to a
// provisioner.
func (m *metrics) bound(claim *v1.PersistentVolumeClaim, now time.Time) {
	m.mu.Lock()
	p, known := m.begun[claim.UID]
	delete(m.begun, claim.UID)
	m.mu.Unlock()
	if known {
		m.total.WithLabelValues(p.provisioner, provisionOperation).Observe(now.Sub(p.at).Seconds())
	}
}

// forget drops the data of a claim that was deleted.
func (m *metrics) forget(claim *v1.PersistentVolumeClaim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.begun, claim.UID)
}

// failed counts a claim whose assignment to a provisioner could not be written.
func (m *metrics) failed(provisioner string) {
	m.errors.WithLabelValues(provisioner, provisionOperation).Inc()
}

// gotClass counts an attempt to assign the default StorageClass to a claim. err is the error of the
// attempt, or nil if it succeeded.
func (m *metrics) gotClass(err error) {
	m.classes.Inc()
	if err != nil {
		m.unassigned.Inc()
	}
}
