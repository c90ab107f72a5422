// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// TestMemoryProtection checks the settings of MemoryQoS for valid configurations, and the errors for others.
func TestMemoryProtection(t *testing.T) {
	const tiered = kubeletconfig.TieredReservationMemoryReservationPolicy
	on, off := map[string]bool{"MemoryQoS": true}, map[string]bool{"MemoryQoS": false}
	for name, c := range map[string]struct {
		gates  map[string]bool
		factor float64 // 0: not set
		policy kubeletconfig.MemoryReservationPolicy
		want   qos.Protection
		err    string
	}{
		"defaults":                          {nil, 0, "", qos.Protection{Allocatable: 7}, ""},
		"factor":                            {nil, 0.5, "None", qos.Protection{Allocatable: 7, Throttling: 0.5}, ""},
		"factor of 1":                       {on, 1, "", qos.Protection{Allocatable: 7, Throttling: 1}, ""},
		"reservation":                       {on, 0, tiered, qos.Protection{Allocatable: 7, Reserve: true}, ""},
		"disabled":                          {off, 0, "None", qos.Protection{}, ""},
		"disabled, with the former default": {off, 0.9, "", qos.Protection{}, ""},
		"disabled, with a factor": {off, 0.8, "", qos.Protection{},
			"memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"},
		"disabled, with a reservation": {off, 0, tiered, qos.Protection{},
			`memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled`},
		"factor too large": {nil, 1.1, "", qos.Protection{},
			"memoryThrottlingFactor 1.1 must be greater than 0 and less than or equal to 1.0"},
		"negative factor": {nil, -1, "", qos.Protection{},
			"memoryThrottlingFactor -1 must be greater than 0 and less than or equal to 1.0"},
		"unknown policy": {nil, 0, "All", qos.Protection{}, `option "All" specified for memoryReservationPolicy. ` +
			`Valid options are "None" or "TieredReservation"`},
	} {
		config := &kubeletconfig.KubeletConfiguration{FeatureGates: c.gates, MemoryReservationPolicy: c.policy}
		if c.factor != 0 {
			config.MemoryThrottlingFactor = &c.factor
		}
		got, err := memoryProtection(config, 7)
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, c.want)
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%s: error %v, want %s", name, err, c.err)
		}
	}
}
