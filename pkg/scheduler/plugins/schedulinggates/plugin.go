// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schedulinggates keeps pods from being scheduled as long as they have scheduling gates.
package schedulinggates

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "SchedulingGates"

// New returns the plugin.
func New() scheduling.Plugin { return scheduling.Plugin{Name: Name, Gate: gate} }

func gate(pod *v1.Pod) *scheduling.Status {
	if len(pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	names := make([]string, 0, len(pod.Spec.SchedulingGates))
	for _, g := range pod.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return &scheduling.Status{
		Code: scheduling.Unresolvable, Plugin: Name,
		Reasons: []string{fmt.Sprintf("waiting for scheduling gates: %v", names)},
	}
}
