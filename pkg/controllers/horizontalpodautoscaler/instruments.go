// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package horizontalpodautoscaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// specError marks an error that is caused by the autoscaler's spec. Its metrics label is "spec".
type specError struct{ error }

// instruments are the metrics about the controller itself. They have Kubernetes' names, labels and
// help texts.
type instruments struct {
	reconciliations, computations *prometheus.CounterVec
	reconciling, computing        *prometheus.HistogramVec
	autoscalers                   prometheus.Gauge
	desired                       *prometheus.GaugeVec
}

// newInstruments registers the metrics. r may be nil.
func newInstruments(r prometheus.Registerer) *instruments {
	const (
		subsystem = "horizontal_pod_autoscaler_controller"
		labels    = "The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label " +
			"'error' should be either 'spec', 'internal', or 'none'. "
		first = "Note that if both spec and internal errors happen during a reconciliation, the first one to " +
			"occur is reported in `error` label."
		byType = "The label 'metric_type' corresponds to HPA.spec.metrics[*].type"
	)
	auto, buckets := promauto.With(r), prometheus.ExponentialBuckets(0.001, 2, 15)
	return &instruments{
		reconciliations: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "reconciliations_total",
			Help: "[BETA] Number of reconciliations of HPA controller. " + labels + first,
		}, []string{"action", "error"}),
		reconciling: auto.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "reconciliation_duration_seconds",
			Help:    "[BETA] The time(seconds) that the HPA controller takes to reconcile once. " + labels + first,
			Buckets: buckets,
		}, []string{"action", "error"}),
		computations: auto.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "metric_computation_total",
			Help: "[BETA] Number of metric computations. " + labels + byType,
		}, []string{"action", "error", "metric_type"}),
		computing: auto.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "metric_computation_duration_seconds",
			Help:    "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. " + labels + byType,
			Buckets: buckets,
		}, []string{"action", "error", "metric_type"}),
		autoscalers: auto.NewGauge(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "num_horizontal_pod_autoscalers",
			Help: "[ALPHA] Current number of controlled HPA objects.",
		}),
		desired: auto.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "desired_replicas",
			Help: "[ALPHA] Current desired replica count for HPA objects.",
		}, []string{"namespace", "hpa_name"}),
	}
}

// none is the value of the label action if nothing was scaled, and of the label error if there was
// no error.
const none = "none"

// actionOf returns the value of the label action for a change of the number of replicas.
func actionOf(current, desired int32) string {
	switch {
	case desired > current:
		return "scale_up"
	case desired < current:
		return "scale_down"
	}
	return none
}

func errorLabel(err error) string {
	var spec specError
	switch {
	case err == nil:
		return none
	case errors.As(err, &spec):
		return "spec"
	}
	return "internal"
}

// reconciled counts an evaluation of an autoscaler and records its duration.
func (i *instruments) reconciled(action string, err error, took time.Duration) {
	i.reconciliations.WithLabelValues(action, errorLabel(err)).Inc()
	i.reconciling.WithLabelValues(action, errorLabel(err)).Observe(took.Seconds())
}

// computed counts the evaluation of one metric and records its duration.
func (i *instruments) computed(
	t autoscalingv2.MetricSourceType, current, desired int32, err error, took time.Duration,
) {
	action := none
	if err == nil {
		action = actionOf(current, desired)
	}
	i.computations.WithLabelValues(action, errorLabel(err), string(t)).Inc()
	i.computing.WithLabelValues(action, errorLabel(err), string(t)).Observe(took.Seconds())
}
