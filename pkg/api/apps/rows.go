// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apps declares the kinds that keep pods running: deployments, replica sets, stateful sets
// and daemon sets. It also declares controller revisions.
//
// Each kind has a row, and next to it the functions that the row refers to: defaults, preparation,
// validation and table cells. All of them are pure: they do no I/O and keep no state.
package apps

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// Rows returns the rows of the group, in discovery order. Pod templates must comply with p.
func Rows(p podspec.Policy) []*resource.Row {
	return []*resource.Row{
		controllerRevisionRow(),
		daemonSetRow(p),
		deploymentRow(p),
		replicaSetRow(p),
		statefulSetRow(p),
	}
}
