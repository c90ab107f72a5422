// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// TestVerdict: a pod that is ended for the node's sake says so, and one that
// broke a limit of its own does not. It has failed once nothing of it runs.
func TestVerdict(t *testing.T) {
	for _, disruption := range []bool{true, false} {
		in := status.Input{
			Pod: &v1.Pod{}, Seen: &cri.Pod{}, Now: time.Unix(1, 0), Ending: true,
			Verdict: &status.Verdict{Phase: v1.PodFailed, Reason: "Evicted", Message: "why", Disruption: disruption},
		}
		for _, in.Ended = range []bool{false, true} {
			s := status.Compute(in)
			if failed := s.Phase == v1.PodFailed; failed != in.Ended || s.Reason != "Evicted" || s.Message != "why" {
				t.Errorf("ended %t: phase %s, reason %q, message %q", in.Ended, s.Phase, s.Reason, s.Message)
			}
			told := slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool {
				return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == "TerminationByKubelet" && c.Message == "why"
			})
			if told != disruption {
				t.Errorf("ended %t: disruption told %t, want %t", in.Ended, told, disruption)
			}
		}
	}
}
