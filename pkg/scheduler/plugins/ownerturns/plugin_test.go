// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerturns_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/ownerturns"
	"keelson.dev/keelson/pkg/scheduler/plugins/prioritysort"
	"keelson.dev/scheduling"
)

func queued(priority int32, turn, since int64) scheduling.QueuedPod {
	return scheduling.QueuedPod{Pod: &v1.Pod{Spec: v1.PodSpec{Priority: &priority}}, Turn: turn, Since: since}
}

// TestLess checks the order of two pods with both queue sort plugins, PrioritySort and OwnerTurns.
func TestLess(t *testing.T) {
	unset := queued(0, 1, 1)
	unset.Pod.Spec.Priority = nil
	for name, tc := range map[string]struct {
		a, b        scheduling.QueuedPod
		sort, turns bool // whether a comes first, with PrioritySort and with OwnerTurns
	}{
		"higher priority":            {queued(2, 9, 9), queued(1, 1, 1), true, true},
		"lower priority":             {queued(1, 1, 1), queued(2, 9, 9), false, false},
		"older":                      {queued(1, 1, 1), queued(1, 1, 2), true, true},
		"equal":                      {queued(1, 1, 1), queued(1, 1, 1), false, false},
		"older, but of a later turn": {queued(1, 2, 1), queued(1, 1, 2), true, false},
		"no priority is 0":           {queued(1, 1, 1), unset, true, true},
		"no priority over negative":  {unset, queued(-1, 1, 0), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := prioritysort.New().Less(tc.a, tc.b); got != tc.sort {
				t.Errorf("PrioritySort: %v", got)
			}
			if got := ownerturns.New().Less(tc.a, tc.b); got != tc.turns {
				t.Errorf("OwnerTurns: %v", got)
			}
		})
	}
}
