// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// csiStorageCapacityRow returns the row of the kind table for the resource csistoragecapacities.
func csiStorageCapacityRow() *resource.Row {
	return resource.Of[storagev1.CSIStorageCapacityList](resource.Kind[*storagev1.CSIStorageCapacity]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csistoragecapacities", Kind: "CSIStorageCapacity",
		Namespaced:     true,
		MetaOnUpdate:   resource.CheckNameAndFinalizers,
		Validate:       validateCSIStorageCapacity,
		ValidateUpdate: validateCSIStorageCapacityUpdate,
		Warnings:       warnCSIStorageCapacity,
	})
}

func validateCSIStorageCapacity(_ context.Context, c *storagev1.CSIStorageCapacity) field.ErrorList {
	var r report.Report
	if c.NodeTopology != nil {
		r.Selector(field.NewPath("nodeTopology"), c.NodeTopology)
	}
	r.Subdomain(field.NewPath("storageClassName"), c.StorageClassName)
	if c.Capacity != nil {
		r.Quantity(field.NewPath("capacity"), *c.Capacity)
	}
	return r.Errors
}

func validateCSIStorageCapacityUpdate(ctx context.Context, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	r := report.Report{Errors: validateCSIStorageCapacity(ctx, c)}
	r.Immutable(field.NewPath("nodeTopology"), c.NodeTopology, old.NodeTopology)
	r.Immutable(field.NewPath("storageClassName"), c.StorageClassName, old.StorageClassName)
	return r.Errors
}

func warnCSIStorageCapacity(_ context.Context, c, _ *storagev1.CSIStorageCapacity) []string {
	return podspec.WarnOfNodeSelector(c.NodeTopology, field.NewPath("nodeTopology"))
}
