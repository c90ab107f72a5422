// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// csiNodeRow declares csinodes.
func csiNodeRow() *resource.Row {
	return resource.Of[storagev1.CSINodeList](resource.Kind[*storagev1.CSINode]{
		Group: "storage.k8s.io", Version: "v1", Resource: "csinodes", Kind: "CSINode",

		ReturnDeleted:  true,
		MetaOnUpdate:   resource.MetaRules{RepeatCreateChecks: 1, SkipUpdateChecks: true},
		Validate:       validateCSINode,
		ValidateUpdate: validateCSINodeUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node"},
			column.Age(),
		},
		Cells: csiNodeCells,
	})
}
