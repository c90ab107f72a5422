// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/intake"
)

// TestSlimKeepsRequests checks that the computed requests of a pod stay the same when package
// intake omits fields of its status, even during a resize.
func TestSlimKeepsRequests(t *testing.T) {
	read, err := intake.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	more := v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	for name, change := range map[string]func(*v1.Pod){
		"status as requested":    func(*v1.Pod) {},
		"allocated more":         func(p *v1.Pod) { p.Status.ContainerStatuses[0].AllocatedResources = more },
		"actual amount differs":  func(p *v1.Pod) { p.Status.ContainerStatuses[1].Resources.Requests = more },
		"allocated at pod level": func(p *v1.Pod) { p.Status.AllocatedResources = more },
		"actual amount at pod level": func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m")}}
			p.Status.AllocatedResources, p.Status.Resources = more, &v1.ResourceRequirements{Requests: more}
		},
		"nothing reported":  func(p *v1.Pod) { p.Status.ContainerStatuses = nil },
		"unknown container": func(p *v1.Pod) { p.Status.ContainerStatuses[0].Name = "x" },
		"resize infeasible": func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].AllocatedResources = more
			p.Status.Conditions = append(p.Status.Conditions,
				v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible})
		},
		"resize at pod level infeasible": func(p *v1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible})
		},
	} {
		p := runningPod(1)
		change(p)
		want := cell.Compile(p.DeepCopy())
		slim, err := read.Pod(message(t, p))
		if err != nil {
			t.Fatal(err)
		}
		if p.Spec.Resources == nil && slim.Status.AllocatedResources != nil {
			t.Errorf("%s: keeps %v", name, slim.Status.AllocatedResources)
		}
		if got := cell.Compile(slim); !equality.Semantic.DeepEqual(got.Requests, want.Requests) ||
			!equality.Semantic.DeepEqual(got.NonZero, want.NonZero) {
			t.Errorf("%s: %+v, want %+v", name, got.Requests, want.Requests)
		}
	}
}
