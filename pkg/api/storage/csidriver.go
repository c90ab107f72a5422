// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/resource"
)

// csiDriverRow declares csidrivers.
func csiDriverRow() *resource.Row {
	return resource.Kind[storagev1.CSIDriver, storagev1.CSIDriverList]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csidrivers", Kind: "CSIDriver",

		Default:       defaultCSIDriver,
		PrepareCreate: prepareCSIDriverCreate,
		PrepareUpdate: prepareCSIDriverUpdate,
		ReturnDeleted: true,
	}.Row()
}
