// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRuntimeClass checks that a pod gets the overhead, node selector and tolerations of its
// runtime class. A toleration that a wider one covers is dropped.
func TestRuntimeClass(t *testing.T) {
	s := optionalServer(t, "")
	cost := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Handler: "h", Overhead: &nodev1.Overhead{PodFixed: cost},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"a": "b"},
			Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v"},
				{Key: "wide", Operator: corev1.TolerationOpExists}},
		},
	}
	if _, err := s.Client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, tc := range []struct {
		name    string
		change  func(*corev1.PodSpec)
		want    []corev1.Toleration
		refused string
	}{
		{"plain", func(*corev1.PodSpec) {}, class.Scheduling.Tolerations, ""},
		{"merged", func(s *corev1.PodSpec) {
			s.Overhead = cost
			s.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists},
				{Key: "wide", Value: "x", Operator: corev1.TolerationOpEqual}}
		}, []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists},
			{Key: "wide", Operator: corev1.TolerationOpExists}}, ""},
		{"all", func(s *corev1.PodSpec) { s.Tolerations = all }, all, ""},
		{"p", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": "c"} }, nil,
			`pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c`},
		{"p", func(s *corev1.PodSpec) {
			s.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		}, nil, `pods "p" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`},
		{"p", func(s *corev1.PodSpec) { *s.RuntimeClassName = "x" }, nil,
			`pods "p" is forbidden: pod rejected: RuntimeClass "x" not found`},
		{"p", func(s *corev1.PodSpec) { s.RuntimeClassName, s.Overhead = nil, cost }, nil,
			`pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
	} {
		got, err := create(t, s, "r", nil, pod(tc.name, func(p *corev1.Pod) {
			name := class.Name
			p.Spec.RuntimeClassName = &name
			tc.change(&p.Spec)
		}))
		if refused(t, err, tc.refused); err != nil {
			continue
		}
		if diff := cmp.Diff(tc.want, got.Spec.Tolerations); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		if got.Spec.NodeSelector["a"] != "b" || !got.Spec.Overhead.Cpu().Equal(resource.MustParse("1")) {
			t.Errorf("%s: got %v, %v", tc.name, got.Spec.NodeSelector, got.Spec.Overhead)
		}
	}
}
