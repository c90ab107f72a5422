// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// TestHollows checks that encoding an object changes it to what decoding returns.
func TestHollows(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Tolerations: []corev1.Toleration{}, NodeSelector: map[string]string{},
		Containers: []corev1.Container{
			{
				Name: "c", Args: []string{}, Env: []corev1.EnvVar{{Name: "e", ValueFrom: &corev1.EnvVarSource{}}},
				Command: []string{"x"},
			},
		},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{},
				},
			},
		},
	}}
	newHollows(&corev1.Pod{})(pod)
	s := &pod.Spec
	if s.Tolerations != nil || s.NodeSelector != nil || s.Containers[0].Args != nil ||
		s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms != nil {
		t.Errorf("empty lists are left: %#v", s)
	}
	if len(s.Containers[0].Command) != 1 || s.Containers[0].Env[0].ValueFrom == nil {
		t.Errorf("more than empty lists is gone: %#v", s)
	}
	policy := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
	}}
	want := policy.DeepCopy()
	want.Spec.Ingress = nil
	newHollows(&networkingv1.NetworkPolicy{})(policy)
	if policy.Spec.Ingress != nil || !equality.Semantic.DeepEqual(policy, want) {
		t.Errorf("%#v", policy.Spec)
	}
	data := &corev1.Secret{Data: map[string][]byte{"a": {}}}
	newHollows(&corev1.Secret{})(data)
	if data.Data["a"] == nil {
		t.Error("an empty value in a map became nil")
	}
	none := &corev1.ConfigMap{BinaryData: map[string][]byte{"a": nil}}
	if newHollows(&corev1.ConfigMap{})(none); none.BinaryData["a"] == nil {
		t.Error("a nil value in a map did not become empty")
	}
}
