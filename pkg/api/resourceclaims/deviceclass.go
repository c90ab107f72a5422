// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// deviceClassRow declares deviceclasses.
func deviceClassRow() *resource.Row {
	return resource.Of[resourcev1.DeviceClassList](resource.Kind[*resourcev1.DeviceClass]{
		Group: "resource.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, classVersions()...), Resource: "deviceclasses", Kind: "DeviceClass",

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		PrepareCreate:            strategy.StartGeneration[resourcev1.DeviceClass],
		PrepareUpdate:            strategy.CountSpec(func(o *resourcev1.DeviceClass) *resourcev1.DeviceClassSpec { return &o.Spec }),
		ValidateName:             report.LongName,
		Validate:                 validateClass,
		ValidateUpdate:           validateClassUpdate,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			column.Age(),
		},
		Cells: deviceClassCells,
	})
}
