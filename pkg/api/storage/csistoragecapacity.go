// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/resource"
)

// csiStorageCapacityRow declares csistoragecapacities.
func csiStorageCapacityRow() *resource.Row {
	return resource.Kind[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csistoragecapacities", Kind: "CSIStorageCapacity", Namespaced: true,
		MetaOnUpdate:   resource.MetaRules{Whole: 1, WholeFirst: true},
		Validate:       validateCSIStorageCapacity,
		ValidateUpdate: validateCSIStorageCapacityUpdate,
		Warnings:       warnCSIStorageCapacity,
	}.Row()
}
