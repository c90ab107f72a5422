// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package batch declares the kinds that run pods to completion.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package batch

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// Rows returns the rows of the group, in discovery order. Their rules hold templates of pods against p.
func Rows(p podspec.Policy) []*resource.Row {
	return []*resource.Row{
		cronJobRow(p),
		jobRow(p),
	}
}
