// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy declares pod disruption budgets.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package policy

import "keelson.dev/apiserver/resource"

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{
		podDisruptionBudgetRow(),
	}
}
