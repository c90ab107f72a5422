// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/resource"
)

// csiNodeRow declares csinodes.
func csiNodeRow() *resource.Row {
	return resource.Kind[storagev1.CSINode, storagev1.CSINodeList]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csinodes", Kind: "CSINode",

		ReturnDeleted: true,
	}.Row()
}
