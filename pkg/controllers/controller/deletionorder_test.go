// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestDeletionOrder(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	pod := func(uid string, changes ...func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid),
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
		p.Spec.NodeName, p.Status.Phase = "n", v1.PodRunning
		for _, f := range changes {
			f(p)
		}
		return p
	}
	ready := func(ago time.Duration) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
		}
	}
	created := func(ago time.Duration) func(*v1.Pod) {
		return func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-ago)) }
	}
	restarted := func(n int32) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: n}} }
	}
	sidecarRestarted := func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always}, {Name: "i"}}
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "s", RestartCount: 1}, {Name: "i"}}
	}
	initRestarted := func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{{Name: "i"}}
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", RestartCount: 9}}
	}
	for name, tc := range map[string]struct {
		first, second *v1.Pod
		order         DeletionOrder
	}{
		"without a node": {pod("b", func(p *v1.Pod) { p.Spec.NodeName = "" }),
			pod("a", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }), DeletionOrder{}},
		"pending": {pod("b", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }),
			pod("a", func(p *v1.Pod) { p.Status.Phase = v1.PodUnknown }), DeletionOrder{}},
		"unknown": {pod("b", func(p *v1.Pod) { p.Status.Phase = v1.PodUnknown }),
			pod("a"), DeletionOrder{}},
		"not ready": {pod("b", created(2*time.Hour)), pod("a", ready(time.Minute)), DeletionOrder{}},
		"preferred": {pod("b", ready(time.Hour)), pod("a", ready(time.Minute)),
			DeletionOrder{Prefer: func(a, b *v1.Pod) int { return trueFirst(a.UID == "b", b.UID == "b") }}},
		"became ready last": {pod("b", ready(50*time.Minute)),
			pod("a", ready(51*time.Minute), restarted(3)), DeletionOrder{}},
		"younger": {pod("b", ready(time.Minute)), pod("a", ready(time.Hour)), DeletionOrder{Now: now}},
		"about the same age": {pod("a", ready(51*time.Minute)),
			pod("b", ready(50*time.Minute), restarted(3)), DeletionOrder{Now: now}},
		"more restarts": {pod("b", ready(time.Hour), restarted(2)),
			pod("a", ready(time.Hour), restarted(1), sidecarRestarted), DeletionOrder{Now: now}},
		"more restarts of a sidecar": {pod("b", sidecarRestarted), pod("a", initRestarted), DeletionOrder{}},
		"created last":               {pod("b", created(time.Minute)), pod("a", created(2*time.Minute)), DeletionOrder{}},
		"created at about the same time": {pod("a", created(61*time.Minute)), pod("b", created(60*time.Minute)),
			DeletionOrder{Now: now}},
	} {
		t.Run(name, func(t *testing.T) {
			if forward, backward := tc.order.Compare(tc.first, tc.second),
				tc.order.Compare(tc.second, tc.first); forward >= 0 || backward <= 0 {
				t.Errorf("forward %d, backward %d", forward, backward)
			}
		})
	}
}
