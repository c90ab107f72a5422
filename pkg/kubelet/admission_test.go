// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/qos"
)

// TestSwapFixed checks that the memory request of a container that may use swap cannot change while
// the container runs, because the container's swap limit depends on its memory request.
func TestSwapFixed(t *testing.T) {
	pod := func(request, limit, cpu string, policy v1.ResourceResizeRestartPolicy) *v1.Pod {
		r := v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(request), v1.ResourceCPU: resource.MustParse(cpu)},
			Limits:   v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit), v1.ResourceCPU: resource.MustParse(cpu)},
		}
		return &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{
				{Resources: r, ResizePolicy: []v1.ContainerResizePolicy{
					{ResourceName: v1.ResourceMemory, RestartPolicy: policy}}}}}}
	}
	limited := qos.Swap{Controller: true, Limited: true}
	for name, c := range map[string]struct {
		swap     qos.Swap
		has, now *v1.Pod
		want     bool
	}{
		"OtherMemory":      {limited, pod("1Gi", "4Gi", "1", v1.NotRequired), pod("2Gi", "4Gi", "1", v1.NotRequired), true},
		"NoSwapAfterwards": {limited, pod("1Gi", "2Gi", "1", v1.NotRequired), pod("2Gi", "2Gi", "1", v1.NotRequired), true},
		"Restarted": {limited, pod("1Gi", "4Gi", "1", v1.RestartContainer),
			pod("2Gi", "4Gi", "1", v1.RestartContainer), false},
		"OtherCPU":   {limited, pod("1Gi", "4Gi", "1", v1.NotRequired), pod("1Gi", "4Gi", "2", v1.NotRequired), false},
		"OtherLimit": {limited, pod("1Gi", "4Gi", "1", v1.NotRequired), pod("1Gi", "5Gi", "1", v1.NotRequired), false},
		"Guaranteed": {limited, pod("1Gi", "1Gi", "1", v1.NotRequired), pod("2Gi", "2Gi", "1", v1.NotRequired), false},
		"NobodySwaps": {qos.Swap{Controller: true}, pod("1Gi", "4Gi", "1", v1.NotRequired),
			pod("2Gi", "4Gi", "1", v1.NotRequired), false},
	} {
		if got := swapFixed(c.swap, c.now, c.has); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
