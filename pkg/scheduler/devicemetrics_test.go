// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
)

// TestDeviceMetrics checks the metrics of created claims and of waits for devices.
func TestDeviceMetrics(t *testing.T) {
	allocation := func(driver string, conditions ...string) *resourcev1.AllocationResult {
		return &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{{Driver: driver, BindingConditions: conditions}}}}
	}
	allocated := &resourcev1.ResourceClaim{}
	allocated.Status.Allocation = allocation("y", "attached")
	plain := dynamicresources.Use{Claim: &resourcev1.ResourceClaim{}, Allocation: allocation("x")}
	conditional := dynamicresources.Use{Claim: allocated}
	m, r := newDeviceMetrics(), prometheus.NewRegistry()
	r.MustRegister(m.creates, m.allocations, m.waits)
	m.created(nil)
	m.created(errors.New("no quota"))
	m.awaited("p", dynamicresources.Plan{plain}, nil, time.Second)
	m.awaited("p", dynamicresources.Plan{plain, conditional}, nil, time.Second)
	for _, err := range []error{
		fmt.Errorf("%w: %w", errDevicesFailed, context.DeadlineExceeded),
		fmt.Errorf("%w: broken", errDevicesFailed),
		errors.New("claim got deallocated"),
	} {
		m.awaited("p", dynamicresources.Plan{conditional}, err, time.Second)
	}
	got := scrape(t, r)
	const creates, allocations, waits = "dynamic_resource_allocation_resourceclaim_creates_total",
		"scheduler_dra_bindingconditions_allocations_total", "scheduler_dra_bindingconditions_wait_duration_seconds"
	want := map[string]float64{
		creates + " false  Pod success": 1, creates + " false  Pod failure": 1,
		waits + " x p success": 1, waits + " y p success": 1, allocations + " y p success": 1,
	}
	for _, status := range []string{"timeout", "failure", "error"} {
		want[waits+" y p "+status], want[allocations+" y p "+status] = 1, 1
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s is %v, want %v", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}
