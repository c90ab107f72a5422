// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/keelson/pkg/kubelet/source"
)

func TestVictims(t *testing.T) {
	guaranteed := func(cpu string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			asks(v1.ResourceCPU, cpu)(pod)
			asks(v1.ResourceMemory, "64Mi")(pod)
			pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests
		}
	}
	static := func(pod *v1.Pod) { pod.Annotations = map[string]string{source.AnnotationSource: source.File} }
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"),
		v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("4")}
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		others []*v1.Pod
		want   string
		refuse string
		first  v1.ResourceName // the first resource that the node lacks; empty means CPU
	}{
		"fits": {pod: podOf("p", static, asks(v1.ResourceCPU, "1")),
			others: []*v1.Pod{podOf("a", asks(v1.ResourceCPU, "1"))}},
		"not critical": {pod: podOf("p", asks(v1.ResourceCPU, "2")),
			others: []*v1.Pod{podOf("a", asks(v1.ResourceCPU, "1"))}},
		"one victim is enough": {
			pod: podOf("p", static, asks(v1.ResourceCPU, "1")), want: "b",
			others: []*v1.Pod{podOf("a", asks(v1.ResourceCPU, "200m")),
				podOf("b", asks(v1.ResourceCPU, "600m")), podOf("c", asks(v1.ResourceCPU, "800m"))},
		},
		"lower QoS class first": {
			pod: podOf("p", static, asks(v1.ResourceCPU, "1")), want: "b",
			others: []*v1.Pod{podOf("a", guaranteed("1")), podOf("b", asks(v1.ResourceCPU, "1"))},
		},
		"higher QoS class only for the rest": {
			pod: podOf("p", static, asks(v1.ResourceCPU, "1500m")), want: "b a",
			others: []*v1.Pod{podOf("a", guaranteed("800m")), podOf("b", asks(v1.ResourceCPU, "600m"))},
		},
		"number of pods": {
			pod: podOf("p", static), want: "a", first: v1.ResourcePods,
			others: []*v1.Pod{podOf("a"), podOf("b", asks(v1.ResourceCPU, "1m")), podOf("c", static), podOf("d", static)},
		},
		"number of pods before resources": {
			pod: podOf("p", static, asks(v1.ResourceCPU, "1500m")), want: "b", first: v1.ResourcePods,
			others: []*v1.Pod{podOf("a", guaranteed("100m")), podOf("b", asks(v1.ResourceCPU, "1")),
				podOf("c", static), podOf("d", static)},
		},
		"no victims among critical pods": {
			pod:    podOf("p", static, asks(v1.ResourceCPU, "1")),
			others: []*v1.Pod{podOf("a", static, asks(v1.ResourceCPU, "1500m"))},
			refuse: "Unexpected error while attempting to recover from admission failure: preemption: error " +
				"finding a set of pods to preempt: " +
				"no set of running pods found to reclaim resources: [(res: cpu, q: 500), ]",
		},
		"other refusal too": {
			pod:    podOf("p", static, asks(v1.ResourceCPU, "2"), wantsPort(80, "", "")),
			others: []*v1.Pod{podOf("a", asks(v1.ResourceCPU, "1"), wantsPort(80, "", ""))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, missing, refused := Victims(tc.pod, tc.others, Node{Allocatable: limits}, source.Static)
			var names []string
			for _, pod := range got {
				names = append(names, pod.Name)
			}
			if text := strings.Join(names, " "); text != tc.want {
				t.Errorf("got %q, want %q", text, tc.want)
			}
			if first := cmp.Or(tc.first, v1.ResourceCPU); len(got) > 0 && missing != first {
				t.Errorf("missing first is %s, want %s", missing, first)
			}
			if text := message(refused); text != tc.refuse {
				t.Errorf("refused: %q, want %q", text, tc.refuse)
			}
		})
	}
}

func message(r *Refusal) string {
	if r == nil {
		return ""
	}
	return r.Message
}
