// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/resource"
)

// csiStorageCapacityRow declares csistoragecapacities.
func csiStorageCapacityRow() *resource.Row {
	return resource.Of[storagev1.CSIStorageCapacityList](resource.Kind[*storagev1.CSIStorageCapacity]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csistoragecapacities", Kind: "CSIStorageCapacity", Namespaced: true,
		MetaOnUpdate:   resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:       validateCSIStorageCapacity,
		ValidateUpdate: validateCSIStorageCapacityUpdate,
		Warnings:       warnCSIStorageCapacity,
	})
}
