// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// volumeAttributesClassRow declares volumeattributesclasses.
func volumeAttributesClassRow() *resource.Row {
	return resource.Of[storagev1.VolumeAttributesClassList](resource.Kind[*storagev1.VolumeAttributesClass]{
		Group: "storage.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, attributesClassVersions()...), Resource: "volumeattributesclasses", Kind: "VolumeAttributesClass",
		ShortNames: []string{"vac"},

		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		Validate:                 validateVolumeAttributesClass,
		ValidateUpdate:           validateVolumeAttributesClassUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "DriverName", Type: "string", Description: storagev1.VolumeAttributesClass{}.SwaggerDoc()["driverName"]},
			column.Age(),
		},
		Cells: volumeAttributesClassCells,
	})
}
