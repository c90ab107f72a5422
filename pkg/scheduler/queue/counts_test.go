// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/scheduling"
)

// TestUpdateLabels checks the label of a waiting pod's update, as the queue counts it.
func TestUpdateLabels(t *testing.T) {
	requests := func(cpu string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
		}
	}
	gate := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }
	for want, change := range map[string]struct{ before, after func(*v1.Pod) }{
		"TargetPodUpdate":             {after: func(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} }},
		"TargetPodUpdatePodLabel":     {after: func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }},
		"TargetPodUpdatePodScaleDown": {before: requests("2"), after: requests("1")},
		"TargetPodUpdatePodScaleUp":   {before: requests("1"), after: requests("2")},
		"TargetPodUpdatePodToleration": {after: func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		}},
		"TargetPodUpdatePodSchedulingGatesEliminated": {before: gate},
		"TargetPodUpdatePodGeneratedResourceClaim": {after: func(p *v1.Pod) {
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "c"}}
		}},
	} {
		t.Run(want, func(t *testing.T) {
			q, _ := newQueue(t)
			old := pod("p", 1)
			if change.before != nil {
				change.before(old)
			}
			q.Set(old)
			if len(old.Spec.SchedulingGates) == 0 {
				q.Unschedulable(mustNext(t, q, "p"), scheduling.NodeAdded, false)
			}
			now := old.DeepCopy()
			now.Generation, now.Spec.SchedulingGates = 2, nil
			if change.after != nil {
				change.after(now)
			}
			q.Set(now)
			got := map[string]uint64{}
			q.Incoming(func(queue string, why Cause, pods uint64) {
				if queue != "unschedulable" {
					got[why.String()] += pods
				}
			})
			delete(got, "UnscheduledPodAdd")
			if len(got) != 1 || got[want] != 1 {
				t.Errorf("causes %v, want one %s", got, want)
			}
		})
	}
}
