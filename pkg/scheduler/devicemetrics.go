// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
)

// deviceMetrics has the metrics of dynamic resource allocation.
type deviceMetrics struct {
	creates     *prometheus.CounterVec
	allocations *prometheus.CounterVec
	waits       *prometheus.HistogramVec
}

func newDeviceMetrics() *deviceMetrics {
	return &deviceMetrics{
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynamic_resource_allocation_resourceclaim_creates_total",
			Help: "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and " +
				"owning API group and kind (either Pod or scheduling.k8s.io/PodGroup)",
		}, []string{"status", "admin_access", "owner_api_group", "owner_api_kind"}),
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_dra_bindingconditions_allocations_total",
			Help: "[ALPHA] Number of allocations using devices with BindingConditions, counted per driver per scheduling " +
				"attempt",
		}, []string{"profile", "driver", "status"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scheduler_dra_bindingconditions_wait_duration_seconds",
			Help:    "[ALPHA] Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
			Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
		}, []string{"profile", "driver", "status"}),
	}
}

// created counts a request to create a claim for a pod's extended resources. err is the request's
// error, or nil if it succeeded.
func (m *deviceMetrics) created(err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.creates.WithLabelValues(status, "false", "", "Pod").Inc()
}

// awaited records how long a pod waited until its devices were attached. err is the error that ended
// the wait, or nil. It records nothing if no device has binding conditions.
func (m *deviceMetrics) awaited(profile string, plan dynamicresources.Plan, err error, took time.Duration) {
	var all, conditional []string // drivers of devices
	for _, u := range plan {
		for _, r := range resultsOf(u) {
			all = append(all, r.Driver)
			if len(r.BindingConditions) > 0 {
				conditional = append(conditional, r.Driver)
			}
		}
	}
	if len(conditional) == 0 {
		return
	}
	status := "error"
	switch {
	case err == nil:
		status = "success"
	case errors.Is(err, context.DeadlineExceeded):
		status = "timeout"
	case errors.Is(err, errDevicesFailed) && !errors.Is(err, context.Canceled):
		status = "failure"
	}
	for _, driver := range all {
		m.waits.WithLabelValues(profile, driver, status).Observe(took.Seconds())
	}
	for _, driver := range conditional {
		m.allocations.WithLabelValues(profile, driver, status).Inc()
	}
}

// resultsOf returns the devices of a claim that a pod uses.
func resultsOf(u dynamicresources.Use) []resourcev1.DeviceRequestAllocationResult {
	a := u.Allocation
	if a == nil {
		a = u.Claim.Status.Allocation
	}
	if a == nil {
		return nil
	}
	return a.Devices.Results
}
