// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// deviceClassRow returns the row of the kind table for the resource deviceclasses.
func deviceClassRow() *resource.Row {
	return resource.Of[resourcev1.DeviceClassList](resource.Kind[*resourcev1.DeviceClass]{
		Group: "resource.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, classVersions()...), Resource: "deviceclasses",
		Kind: "DeviceClass",

		MetaOnUpdate:  resource.CheckNameAndFinalizers,
		PrepareCreate: strategy.StartGeneration[resourcev1.DeviceClass],
		PrepareUpdate: strategy.CountSpec(
			func(o *resourcev1.DeviceClass) *resourcev1.DeviceClassSpec { return &o.Spec }),
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

func validateClass(_ context.Context, c *resourcev1.DeviceClass) field.ErrorList {
	return checkClass(&c.Spec, nil)
}

func validateClassUpdate(_ context.Context, c, old *resourcev1.DeviceClass) field.ErrorList {
	return checkClass(&c.Spec, &old.Spec)
}

// checkClass validates the spec of a DeviceClass. old is nil if the class is new.
func checkClass(s, old *resourcev1.DeviceClassSpec) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	checkSelectors(&r, path.Child("selectors"), s.Selectors, old != nil &&
		equality.Semantic.DeepEqual(s.Selectors, old.Selectors))
	stored := old != nil && equality.Semantic.DeepEqual(s.Config, old.Config)
	checkSlice(&r, path.Child("config"), s.Config, resourcev1.DeviceConfigMaxSize,
		func(at *field.Path, c *resourcev1.DeviceClassConfiguration) {
			checkConfig(&r, at, &c.DeviceConfiguration, stored)
		})
	if name := s.ExtendedResourceName; name != nil && !isExtendedResource(*name) {
		r.Invalid(path.Child("extendedResourceName"), *name, "must be a valid extended resource name")
	}
	return r.Errors
}

func deviceClassCells(o *resourcev1.DeviceClass, env resource.CellEnv) []any {
	return []any{o.Name, env.Age(o.CreationTimestamp)}
}
