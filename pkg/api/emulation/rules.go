// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package emulation

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// rulesOf returns the rules for objects of row.
func rulesOf(row *resource.Row) (rules []*rule) {
	obj := row.New()
	switch obj.(type) {
	case *appsv1.StatefulSet:
		rules = append(rules, dropped("spec.updateStrategy.rollingUpdate.maxUnavailable", maxUnavailable))
	case *storagev1.CSIDriver:
		rules = append(rules, dropped("spec.preventPodSchedulingIfMissing", preventScheduling))
	case *autoscalingv2.HorizontalPodAutoscaler:
		rules = append(rules, zeroReplicas())
	}
	if podspec.Has(obj) {
		rules = append(rules, droppedSource("clusterTrustBundle",
			func(s *corev1.VolumeProjection) **corev1.ClusterTrustBundleProjection { return &s.ClusterTrustBundle }),
			droppedSource("podCertificate",
				func(s *corev1.VolumeProjection) **corev1.PodCertificateProjection { return &s.PodCertificate }))
	}
	return rules
}

// dropped returns the rule for a field with a default that the earlier release drops. at returns the address of the
// field, or nil if the object does not have the field's parent.
func dropped[O resource.Object, F any](name string, at func(O) **F) *rule {
	fieldOf := func(obj resource.Object) **F {
		if o, ok := obj.(O); ok {
			return at(o)
		}
		return nil
	}
	return &rule{
		name:      name,
		defaulted: true,
		uses:      func(obj resource.Object) bool { f := fieldOf(obj); return f != nil && *f != nil },
		clear: func(obj resource.Object) {
			if f := fieldOf(obj); f != nil {
				*f = nil
			}
		},
	}
}

func maxUnavailable(s *appsv1.StatefulSet) **intstr.IntOrString {
	if rolling := s.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		return &rolling.MaxUnavailable
	}
	return nil
}

func preventScheduling(d *storagev1.CSIDriver) **bool { return &d.Spec.PreventPodSchedulingIfMissing }

// zeroReplicas returns the rule for autoscalers with a minimum of zero replicas.
func zeroReplicas() *rule {
	return &rule{
		name: "spec.minReplicas: 0",
		uses: func(obj resource.Object) bool {
			h, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
			return ok && h.Spec.MinReplicas != nil && *h.Spec.MinReplicas == 0
		},
		rejection: field.Invalid(field.NewPath("spec", "minReplicas"), int32(0), "must be greater than or equal to 1"),
	}
}
