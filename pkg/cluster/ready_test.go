// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStartedHere checks that a pod whose status is from before the cluster's start does not count
// as started.
func TestStartedHere(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	running := func(at time.Time) core.ContainerState {
		return core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}
	}
	for name, tc := range map[string]struct {
		ready core.ConditionStatus
		state core.ContainerState
		want  bool
	}{
		"since":           {core.ConditionTrue, running(began.Add(time.Second)), true},
		"the same second": {core.ConditionTrue, running(began.Truncate(time.Second)), true},
		"before":          {core.ConditionTrue, running(began.Add(-time.Minute)), false},
		"not ready":       {core.ConditionFalse, running(began.Add(time.Second)), false},
		"not running":     {core.ConditionTrue, core.ContainerState{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := core.Pod{Status: core.PodStatus{
				Conditions:        []core.PodCondition{{Type: core.PodReady, Status: tc.ready}},
				ContainerStatuses: []core.ContainerStatus{{State: tc.state}},
			}}
			if got := (&progress{began: began}).startedHere(pod); got != tc.want {
				t.Errorf("startedHere = %t, want %t", got, tc.want)
			}
		})
	}
}
