// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// metrics are the controller's metrics. They have Kubernetes' names and help texts.
type metrics struct {
	syncs    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics registers the metrics of the controller of ConfigMaps. r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	const help = "[ALPHA] Number of namespace syncs happened in root ca cert publisher."
	return register(r, "root_ca_cert_publisher", help, help)
}

// newBundleMetrics registers the metrics of the controller of the bundle. r may be nil.
func newBundleMetrics(r prometheus.Registerer) *metrics {
	return register(r, "clustertrustbundle_publisher",
		"[ALPHA] Number of syncs that occurred in cluster trust bundle publisher.",
		"[ALPHA] The time it took to sync a cluster trust bundle.")
}

func register(r prometheus.Registerer, subsystem, syncs, duration string) *metrics {
	auto := promauto.With(r)
	return &metrics{
		syncs: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "sync_total",
			Help: syncs,
		}, []string{"code"}),
		duration: auto.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "sync_duration_seconds",
			Help:    duration,
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"code"}),
	}
}

// synced counts a sync and records its duration. The label code is 200, the API server's status
// code for an error, or 500 for other errors.
func (m *metrics) synced(took time.Duration, err error) {
	code := http.StatusOK
	if err != nil {
		code = http.StatusInternalServerError
		if s := apierrors.APIStatus(nil); errors.As(err, &s) && s.Status().Code != 0 {
			code = int(s.Status().Code)
		}
	}
	m.syncs.WithLabelValues(strconv.Itoa(code)).Inc()
	m.duration.WithLabelValues(strconv.Itoa(code)).Observe(took.Seconds())
}
