// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

func warnPersistentVolume(_ context.Context, pv, _ *corev1.PersistentVolume) []string {
	var warnings []string
	for _, a := range []struct{ key, message string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, there := pv.Annotations[a.key]; there {
			warnings = append(warnings, field.NewPath("metadata", "annotations").Key(a.key).String()+": "+a.message)
		}
	}
	spec := field.NewPath("spec")
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings, spec.Child("persistentVolumeReclaimPolicy").String()+": The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			warnings = append(warnings, podspec.WarnOfNodeTerm(&a.Required.NodeSelectorTerms[i], false, spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))...)
		}
	}
	return append(warnings, podspec.WarnOfPersistentSource(&pv.Spec.PersistentVolumeSource, spec)...)
}

func warnPersistentVolumeClaim(_ context.Context, pvc, _ *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, there := pvc.Annotations[corev1.BetaStorageClassAnnotation]; there {
		warnings = append(warnings, field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation).String()+
			`: deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(warnings, podspec.WarnOfClaim(&pvc.Spec, field.NewPath("spec"))...)
}
