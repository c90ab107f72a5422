// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/resource"
)

// storageClassRow declares storageclasses.
func storageClassRow() *resource.Row {
	return resource.Kind[storagev1.StorageClass, storagev1.StorageClassList]{
		Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Kind: "StorageClass",
		ShortNames: []string{"sc"},

		Default:                  defaultStorageClass,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Row()
}
