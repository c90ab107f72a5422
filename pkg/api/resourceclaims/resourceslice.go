// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// resourceSliceRow declares resourceslices.
func resourceSliceRow() *resource.Row {
	return resource.Of[resourcev1.ResourceSliceList](resource.Kind[*resourcev1.ResourceSlice]{
		Group: "resource.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, sliceVersions()...), Resource: "resourceslices", Kind: "ResourceSlice",

		PrepareCreate:            prepareSlice,
		PrepareUpdate:            prepareSliceUpdate,
		Validate:                 validateSlice,
		ValidateUpdate:           validateSliceUpdate,
		Warnings:                 warnSlice,
		Fields:                   resourceSliceFields,
		SelectableFields:         []string{"spec.nodeName", "spec.driver"},
		UnknownField:             "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %[1]s",
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Node", Type: "string", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["nodeName"]},
			{Name: "Driver", Type: "string", Description: resourcev1.ResourceSliceSpec{}.SwaggerDoc()["driver"]},
			{Name: "Pool", Type: "string", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"]},
			column.Age(),
		},
		Cells: resourceSliceCells,
	})
}
