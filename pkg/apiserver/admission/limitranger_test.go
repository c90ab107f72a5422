// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDefaultsReachPodLevelResources checks that the defaults that a LimitRange sets for containers
// are included when the resources of the whole pod are validated.
func TestDefaultsReachPodLevelResources(t *testing.T) {
	s := pluginServer(t)
	half := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, DefaultRequest: half, Default: half},
		}}}
	if _, err := s.Client.CoreV1().LimitRanges("default").Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests of the pod", func(ctx context.Context) bool {
		p, err := s.Client.CoreV1().Pods("default").Create(ctx, pod("p", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Image: "i"})
			p.Spec.Resources = &corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
		}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Fatal(err)
		}
		return p.Spec.Resources.Requests.Memory().String() == "1Gi"
	})
}
