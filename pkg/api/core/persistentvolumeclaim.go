// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// persistentVolumeClaimRow declares persistentvolumeclaims.
func persistentVolumeClaimRow() *resource.Row {
	parts := strategy.Parts[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimSpec, corev1.PersistentVolumeClaimStatus](func(o *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaimSpec, *corev1.PersistentVolumeClaimStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.PersistentVolumeClaimList](resource.Kind[*corev1.PersistentVolumeClaim]{
		Group: "", Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true,
		ShortNames: []string{"pvc"},

		Default:                  defaultPersistentVolumeClaim,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		PrepareCreate:            preparePersistentVolumeClaimCreate,
		Validate:                 validatePersistentVolumeClaim,
		PrepareUpdate:            preparePersistentVolumeClaimUpdate,
		ValidateUpdate:           validatePersistentVolumeClaimUpdate,
		Warnings:                 warnPersistentVolumeClaim,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["phase"]},
			{Name: "Volume", Type: "string", Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeName"]},
			{Name: "Capacity", Type: "string", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["capacity"]},
			{Name: "Access Modes", Type: "string", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["accessModes"]},
			{Name: "StorageClass", Type: "string", Description: "StorageClass of the pvc"},
			{Name: "VolumeAttributesClass", Type: "string", Description: "VolumeAttributesClass of the pvc"},
			column.Age(),
			{Name: "VolumeMode", Type: "string", Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeMode"], Priority: column.Wide},
		},
		Cells: persistentVolumeClaimCells,

		Subresources: []resource.Sub[*corev1.PersistentVolumeClaim]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validatePersistentVolumeClaimStatus},
		},
	})
}
