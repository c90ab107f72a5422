// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package batch declares jobs and cron jobs, which run pods to completion.
//
// Each kind has a row, and next to it the functions that the row refers to: defaults,
// preparation, validation and table cells. All of them are pure: they do no I/O and keep no
// state.
package batch

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// Rows returns the rows of the group, in discovery order. Pod templates must comply with p.
func Rows(p podspec.Policy) []*resource.Row {
	return []*resource.Row{
		cronJobRow(p),
		jobRow(p),
	}
}
