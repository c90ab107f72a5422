// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// volumeAttachmentRow declares volumeattachments.
func volumeAttachmentRow() *resource.Row {
	parts := strategy.Parts[storagev1.VolumeAttachment, storagev1.VolumeAttachmentSpec, storagev1.VolumeAttachmentStatus](func(o *storagev1.VolumeAttachment) (*storagev1.VolumeAttachmentSpec, *storagev1.VolumeAttachmentStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[storagev1.VolumeAttachmentList](resource.Kind[*storagev1.VolumeAttachment]{
		Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments", Kind: "VolumeAttachment",

		MetaOnUpdate:   resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Default:        defaultVolumeAttachment,
		PrepareCreate:  parts.ClearStatus,
		PrepareUpdate:  parts.KeepStatus,
		ResetFields:    []string{"status"},
		ReturnDeleted:  true,
		Validate:       validateVolumeAttachment,
		ValidateUpdate: validateVolumeAttachmentUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Attacher", Type: "string", Format: "name", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["attacher"]},
			{Name: "PV", Type: "string", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]},
			{Name: "Node", Type: "string", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["nodeName"]},
			{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]},
			column.Age(),
		},
		Cells: volumeAttachmentCells,

		Subresources: []resource.Sub[*storagev1.VolumeAttachment]{
			{Subresource: strategy.View("status", "spec", "metadata").WithMetaRules(resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true}), PrepareUpdate: parts.KeepSpecAndMeta, ValidateUpdate: validateVolumeAttachmentUpdate},
		},
	})
}
