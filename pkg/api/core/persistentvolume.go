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

// persistentVolumeRow declares persistentvolumes.
func persistentVolumeRow() *resource.Row {
	parts := strategy.Parts[corev1.PersistentVolume, corev1.PersistentVolumeSpec, corev1.PersistentVolumeStatus](func(o *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, *corev1.PersistentVolumeStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.PersistentVolumeList](resource.Kind[*corev1.PersistentVolume]{
		Group: "", Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume",
		ShortNames: []string{"pv"},

		Default:                  defaultPersistentVolume,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 2, CreateChecksFirst: true, SkipUpdateChecks: true},
		PrepareCreate:            preparePersistentVolumeCreate,
		Validate:                 validateNewVolume,
		PrepareUpdate:            parts.KeepStatus,
		ValidateUpdate:           validatePersistentVolumeUpdate,
		Warnings:                 warnPersistentVolume,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Capacity", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["capacity"]},
			{Name: "Access Modes", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["accessModes"]},
			{Name: "Reclaim Policy", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["persistentVolumeReclaimPolicy"]},
			{Name: "Status", Type: "string", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["phase"]},
			{Name: "Claim", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["claimRef"]},
			{Name: "StorageClass", Type: "string", Description: "StorageClass of the pv"},
			{Name: "VolumeAttributesClass", Type: "string", Description: "VolumeAttributesClass of the pv"},
			{Name: "Reason", Type: "string", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["reason"]},
			column.Age(),
			{Name: "VolumeMode", Type: "string", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["volumeMode"], Priority: column.Wide},
		},
		Cells: persistentVolumeCells,

		Subresources: []resource.Sub[*corev1.PersistentVolume]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: preparePersistentVolumeStatus},
		},
	})
}
