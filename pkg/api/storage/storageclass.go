// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// storageClassRow declares storageclasses.
func storageClassRow() *resource.Row {
	return resource.Of[storagev1.StorageClassList](resource.Kind[*storagev1.StorageClass]{
		Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Kind: "StorageClass",
		ShortNames: []string{"sc"},

		Default:                  defaultStorageClass,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateStorageClass,
		ValidateUpdate:           validateStorageClassUpdate,
		Warnings:                 warnStorageClass,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Provisioner", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["provisioner"]},
			{Name: "ReclaimPolicy", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["reclaimPolicy"]},
			{Name: "VolumeBindingMode", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["volumeBindingMode"]},
			{Name: "AllowVolumeExpansion", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["allowVolumeExpansion"]},
			column.Age(),
		},
		Cells: storageClassCells,
	})
}
