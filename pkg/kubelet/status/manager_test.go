// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/status"
)

// TestPatchKeepsWhatDisrupts: why a pod is disrupted is said by others, too, and the kubelet may not have seen it when it
// made the status that it wants.
func TestPatchKeepsWhatDisrupts(t *testing.T) {
	disrupted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByTaintManager"}
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	own := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet}
	known := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{disrupted}}}
	for name, c := range map[string]struct {
		want []v1.PodCondition
		text string // of the patch
	}{
		"others'":       {[]v1.PodCondition{ready}, `{"metadata":{"uid":""},"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"},{"type":"Ready"}],"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"status":"True","type":"Ready"}]}}`},
		"the kubelet's": {[]v1.PodCondition{own}, `{"metadata":{"uid":""},"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"}],"conditions":[{"reason":"TerminationByKubelet","type":"DisruptionTarget"}]}}`},
	} {
		patch, err := status.Patch(known, v1.PodStatus{Conditions: c.want})
		if got := string(patch); err != nil || got != c.text {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
