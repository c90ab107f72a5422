// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol declares flow schemas and priority levels, which share a server's capacity
// between requests.
//
// Each kind has a row, and next to it the functions that the row refers to: defaults,
// preparation, validation and table cells. All of them are pure: they do no I/O and keep no
// state.
package flowcontrol

import "keelson.dev/apiserver/resource"

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{
		flowSchemaRow(),
		priorityLevelConfigurationRow(),
	}
}
