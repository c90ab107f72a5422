// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func persistentVolumeCells(pv *corev1.PersistentVolume, env resource.CellEnv) []any {
	claim := ""
	if ref := pv.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(pv.Status.Phase)
	if pv.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		pv.Name, size.String(), accessModes(pv.Spec.AccessModes), string(pv.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		storageClass(pv.Annotations, &pv.Spec.StorageClassName), column.Deref(pv.Spec.VolumeAttributesClassName, column.Unset),
		pv.Status.Reason, env.Age(pv.CreationTimestamp), column.Deref(pv.Spec.VolumeMode, column.Unset),
	}
}

func persistentVolumeClaimCells(pvc *corev1.PersistentVolumeClaim, env resource.CellEnv) []any {
	phase := string(pvc.Status.Phase)
	if pvc.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes := "", ""
	if pvc.Spec.VolumeName != "" {
		size := pvc.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModes(pvc.Status.AccessModes)
	}
	return []any{
		pvc.Name, phase, pvc.Spec.VolumeName, capacity, modes,
		storageClass(pvc.Annotations, pvc.Spec.StorageClassName), column.Deref(pvc.Spec.VolumeAttributesClassName, column.Unset),
		env.Age(pvc.CreationTimestamp), column.Deref(pvc.Spec.VolumeMode, column.Unset),
	}
}

// storageClass prefers the annotation that was there before the field.
func storageClass(annotations map[string]string, name *string) string {
	if class, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if name == nil {
		return ""
	}
	return *name
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var texts []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			texts = append(texts, m.text)
		}
	}
	return strings.Join(texts, ",")
}
