// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// csiDriverRow declares csidrivers.
func csiDriverRow() *resource.Row {
	return resource.Of[storagev1.CSIDriverList](resource.Kind[*storagev1.CSIDriver]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers", Kind: "CSIDriver",

		Default:        defaultCSIDriver,
		PrepareCreate:  prepareCSIDriverCreate,
		PrepareUpdate:  prepareCSIDriverUpdate,
		ReturnDeleted:  true,
		Validate:       validateCSIDriver,
		ValidateUpdate: validateCSIDriverUpdate,
		Warnings:       warnCSIDriver,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "AttachRequired", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["attachRequired"]},
			{Name: "PodInfoOnMount", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["podInfoOnMount"]},
			{Name: "StorageCapacity", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["storageCapacity"]},
			{Name: "TokenRequests", Type: "string", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["tokenRequests"]},
			{Name: "RequiresRepublish", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["requiresRepublish"]},
			{Name: "Modes", Type: "string", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["volumeLifecycleModes"]},
			column.Age(),
		},
		Cells: csiDriverCells,
	})
}
