// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math/rand/v2"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/scheduling"
)

// TestRequestsMatchStatus compares the fields Requests and NonZero of compiled pods with Kubernetes'
// computation, which always reads the status, for random pods with and without each part of the status.
func TestRequestsMatchStatus(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		pod := randomPod(rng)
		p := Compile(pod)
		for nonZero, got := range map[bool]scheduling.Resources{false: p.Requests, true: p.NonZero} {
			opts := resourcehelper.PodResourcesOptions{UseStatusResources: true,
				InPlacePodLevelResourcesVerticalScalingEnabled: true}
			if nonZero {
				opts.NonMissingContainerRequests = nonZeroRequests
			}
			want := FromList(resourcehelper.PodRequests(pod, opts))
			if got.MilliCPU != want.MilliCPU || got.Memory != want.Memory {
				t.Fatalf("nonZero %v: got %d milli CPU and %d bytes, want %d and %d, pod:\n%+v", nonZero,
					got.MilliCPU, got.Memory, want.MilliCPU, want.Memory, pod)
			}
		}
	}
}

func randomPod(rng *rand.Rand) *v1.Pod {
	list := func() v1.ResourceList {
		l := v1.ResourceList{}
		if rng.IntN(3) > 0 {
			l[v1.ResourceCPU] = *resource.NewMilliQuantity(rng.Int64N(500), resource.DecimalSI)
		}
		if rng.IntN(3) > 0 {
			l[v1.ResourceMemory] = *resource.NewQuantity(rng.Int64N(1<<30), resource.BinarySI)
		}
		return l
	}
	maybe := func() v1.ResourceList {
		if rng.IntN(4) > 0 {
			return nil
		}
		return list()
	}
	containers := func(n int, init bool) (cs []v1.Container, ss []v1.ContainerStatus) {
		for i := range n {
			name := strconv.FormatBool(init) + strconv.Itoa(i)
			c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list()}}
			if init && rng.IntN(2) == 0 {
				always := v1.ContainerRestartPolicyAlways
				c.RestartPolicy = &always
			}
			cs = append(cs, c)
			if rng.IntN(2) == 0 {
				s := v1.ContainerStatus{Name: name, AllocatedResources: maybe()}
				if rng.IntN(4) == 0 {
					s.Resources = &v1.ResourceRequirements{Requests: maybe()}
				}
				ss = append(ss, s)
			}
		}
		return cs, ss
	}
	pod := &v1.Pod{}
	pod.Spec.Containers, pod.Status.ContainerStatuses = containers(1+rng.IntN(2), false)
	pod.Spec.InitContainers, pod.Status.InitContainerStatuses = containers(rng.IntN(3), true)
	if rng.IntN(4) == 0 {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: list()}
	}
	if rng.IntN(4) == 0 {
		pod.Spec.Overhead = list()
	}
	pod.Status.AllocatedResources = maybe()
	if rng.IntN(4) == 0 {
		pod.Status.Resources = &v1.ResourceRequirements{Requests: maybe()}
	}
	if rng.IntN(4) == 0 {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
	}
	return pod
}
