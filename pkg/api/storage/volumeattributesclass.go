// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
)

// volumeAttributesClassRow returns the row of the kind table for the resource
// volumeattributesclasses.
func volumeAttributesClassRow() *resource.Row {
	return resource.Of[storagev1.VolumeAttributesClassList](resource.Kind[*storagev1.VolumeAttributesClass]{
		Group: "storage.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, attributesClassVersions()...),
		Resource: "volumeattributesclasses", Kind: "VolumeAttributesClass",
		ShortNames: []string{"vac"},

		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
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

func validateVolumeAttributesClass(_ context.Context, c *storagev1.VolumeAttributesClass) field.ErrorList {
	var r report.Report
	provisioner(&r, field.NewPath("driverName"), c.DriverName)
	parameters(&r, field.NewPath("parameters"), c.Parameters)
	if len(c.Parameters) == 0 {
		r.Required(field.NewPath("parameters"), "must contain at least one key/value pair")
	}
	return r.Errors
}

func validateVolumeAttributesClassUpdate(ctx context.Context, c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var r report.Report
	if c.DriverName != old.DriverName {
		r.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden.")
	}
	if !equality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
		r.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden.")
	}
	r.Add(validateVolumeAttributesClass(ctx, c)...)
	return r.Errors
}

func volumeAttributesClassCells(c *storagev1.VolumeAttributesClass, env resource.CellEnv) []any {
	return []any{c.Name, c.DriverName, env.Age(c.CreationTimestamp)}
}

func attributesClassVersions() []resource.Version {
	v := older.Version{
		Name: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in " +
			"v1.37+; use storage.k8s.io/v1 VolumeAttributesClass",
		Stored: &storagev1.VolumeAttributesClass{}, Object: &storagev1beta1.VolumeAttributesClass{},
		List:    &storagev1beta1.VolumeAttributesClassList{},
		Convert: convertAttributesClass,
		Removed: 37,
	}
	return []resource.Version{v.Row()}
}

func convertAttributesClass(in, out resource.Object) error {
	if in, ok := in.(*storagev1.VolumeAttributesClass); ok {
		if out, ok := out.(*storagev1beta1.VolumeAttributesClass); ok {
			out.ObjectMeta, out.DriverName, out.Parameters = in.ObjectMeta, in.DriverName, in.Parameters
			return nil
		}
	}
	if in, ok := in.(*storagev1beta1.VolumeAttributesClass); ok {
		if out, ok := out.(*storagev1.VolumeAttributesClass); ok {
			out.ObjectMeta, out.DriverName, out.Parameters = in.ObjectMeta, in.DriverName, in.Parameters
			return nil
		}
	}
	return fmt.Errorf("cannot convert %T to %T", in, out)
}
