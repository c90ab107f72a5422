// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// checkNodeAnnotations judges what annotations once said of a node, and nobody reads any more.
func checkNodeAnnotations(r *report.Report, annotations map[string]string) {
	path := field.NewPath("metadata", "annotations")
	if text := annotations[corev1.TaintsAnnotationKey]; text != "" {
		var taints []corev1.Taint
		if err := podspec.ReadAnnotation(text, &taints); err != nil {
			r.Invalid(path, corev1.TaintsAnnotationKey, err.Error())
		}
		checkTaints(r, taints, path.Child(corev1.TaintsAnnotationKey))
	}
	if text := annotations[corev1.PreferAvoidPodsAnnotationKey]; text != "" {
		var avoid corev1.AvoidPods
		// These Kubernetes reads as they are on the wire.
		if err := json.Unmarshal([]byte(text), &avoid); err != nil {
			r.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error())
		}
		for i, entry := range avoid.PreferAvoidPods {
			at := path.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("PodSignature")
			switch owner := entry.PodSignature.PodController; {
			case owner == nil:
				r.Required(at, "")
			case owner.Controller == nil || !*owner.Controller:
				r.Invalid(at.Child("PodController", "Controller"), false, "must point to a controller")
			}
		}
	}
}
