// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apps declares the kinds that keep pods running: deployments, replica sets, stateful sets
// and daemon sets. It also declares controller revisions.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package apps

import (
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them. p
// restricts the pod templates that the server accepts.
func Rows(p podspec.Policy) []*resource.Row {
	return []*resource.Row{
		controllerRevisionRow(),
		daemonSetRow(p),
		deploymentRow(p),
		replicaSetRow(p),
		statefulSetRow(p),
	}
}
