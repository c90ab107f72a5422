// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MergeLabelKeys replaces label keys in affinity terms and spread constraints by
// requirements on the values that the new pod has for them.
func MergeLabelKeys(spec *corev1.PodSpec, labels map[string]string) {
	if a := spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			mergeTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, labels)
		}
		if a.PodAntiAffinity != nil {
			mergeTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, labels)
		}
	}
	for i := range spec.TopologySpreadConstraints {
		c := &spec.TopologySpreadConstraints[i]
		require(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	}
}

func mergeTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, labels map[string]string) {
	for i := range preferred {
		mergeTerm(&preferred[i].PodAffinityTerm, labels)
	}
	for i := range required {
		mergeTerm(&required[i], labels)
	}
}

func mergeTerm(t *corev1.PodAffinityTerm, labels map[string]string) {
	require(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	require(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
}

// require adds nothing to a nil selector: it matches nothing anyway.
func require(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil {
		return
	}
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
}
