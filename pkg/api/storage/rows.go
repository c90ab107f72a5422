// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage declares storage classes, drivers and attachments.
//
// Each kind has a row, and next to it the functions that the row refers to: defaults,
// preparation, validation and table cells. All of them are pure: they do no I/O and keep no
// state.
package storage

import "keelson.dev/apiserver/resource"

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{
		csiDriverRow(),
		csiNodeRow(),
		csiStorageCapacityRow(),
		storageClassRow(),
		volumeAttachmentRow(),
		volumeAttributesClassRow(),
	}
}
