// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package core declares the kinds of the core group: pods, services, nodes and what surrounds them.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package core

import "keelson.dev/apiserver/resource"

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{
		bindingRow(),
		componentStatusRow(),
		configMapRow(),
		endpointsRow(),
		eventRow(),
		limitRangeRow(),
		namespaceRow(),
		nodeRow(),
		persistentVolumeClaimRow(),
		persistentVolumeRow(),
		podRow(),
		podTemplateRow(),
		replicationControllerRow(),
		resourceQuotaRow(),
		secretRow(),
		serviceAccountRow(),
		serviceRow(),
	}
}
