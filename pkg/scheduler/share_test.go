// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/scheduler/cell"
)

// TestShare: pods share what they have in common and keep what is their own.
func TestShare(t *testing.T) {
	s := newSharer()
	odd := func(i int, change func(*v1.Pod)) *v1.Pod {
		p := runningPod(i)
		change(p)
		return p
	}
	claim := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
	var want, have []*v1.Pod
	for _, p := range []*v1.Pod{
		runningPod(1), runningPod(2), odd(3, claim("a")), odd(4, claim("b")), runningPod(60),
		odd(5, func(p *v1.Pod) { p.Spec.Hostname = "other" }), odd(6, func(p *v1.Pod) { p.Spec.NodeName = "" }),
		odd(7, func(p *v1.Pod) { p.Labels = nil }), odd(8, func(p *v1.Pod) { p.Spec.Containers[1].Image = "other" }),
	} {
		slimPod(p)
		want = append(want, p.DeepCopy())
		s.share(p)
		have = append(have, p)
	}
	for i := range want {
		if !equality.Semantic.DeepEqual(want[i], have[i]) {
			t.Errorf("pod %d is\n%+v, want\n%+v", i, have[i], want[i])
		}
	}
	for _, pair := range [][2]int{{0, 1}, {0, 4}, {0, 5}, {0, 6}, {0, 7}, {2, 3}} {
		if &have[pair[0]].Spec.Containers[0] != &have[pair[1]].Spec.Containers[0] {
			t.Errorf("pods %v have containers of their own", pair)
		}
	}
	if &have[8].Spec.Containers[0] == &have[0].Spec.Containers[0] {
		t.Error("different containers are shared")
	}
}

// TestShareIsBounded: pods of which none is like another do not pile up.
func TestShareIsBounded(t *testing.T) {
	s := newSharer()
	for i := range maxShared {
		p := &v1.Pod{}
		p.Name, p.Spec.NodeName, p.Labels = fmt.Sprint(i), fmt.Sprint("n", i), map[string]string{"i": fmt.Sprint(i)}
		s.share(p)
		if p.Spec.NodeName != fmt.Sprint("n", i) || p.Labels["i"] != fmt.Sprint(i) {
			t.Fatalf("pod %d is %+v", i, p)
		}
	}
	if len(s.known) > maxShared {
		t.Errorf("%d parts are known", len(s.known))
	}
}

// TestSlimKeepsRequests: what a pod takes of its node is the same after statuses
// have gone, in the middle of a resize too.
func TestSlimKeepsRequests(t *testing.T) {
	more := v1.ResourceList{v1.ResourceCPU: resource.MustParse("300m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	for name, change := range map[string]func(*v1.Pod){
		"as asked":          func(*v1.Pod) {},
		"allocated more":    func(p *v1.Pod) { p.Status.ContainerStatuses[0].AllocatedResources = more },
		"actual other":      func(p *v1.Pod) { p.Status.ContainerStatuses[1].Resources.Requests = more },
		"nothing reported":  func(p *v1.Pod) { p.Status.ContainerStatuses = nil },
		"unknown container": func(p *v1.Pod) { p.Status.ContainerStatuses[0].Name = "x" },
		"cannot be resized": func(p *v1.Pod) {
			p.Status.ContainerStatuses[0].AllocatedResources = more
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible})
		},
		"asks, and cannot": func(p *v1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible})
		},
	} {
		p := runningPod(1)
		change(p)
		want := cell.Compile(p.DeepCopy())
		slimPod(p)
		if got := cell.Compile(p); !equality.Semantic.DeepEqual(got.Requests, want.Requests) || !equality.Semantic.DeepEqual(got.NonZero, want.NonZero) {
			t.Errorf("%s: %+v, want %+v", name, got.Requests, want.Requests)
		}
	}
}
