// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networking declares ingresses, network policies and the addresses of services.
//
// Each kind has its row here, and beside it what the row names: defaults,
// preparation, validation, table cells. All of it is pure: no I/O, no state.
package networking

import "keelson.dev/apiserver/resource"

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{
		ingressClassRow(),
		ingressRow(),
		ipAddressRow(),
		networkPolicyRow(),
		serviceCIDRRow(),
	}
}

const olderForm = "networking.k8s.io/v1beta1 %s is deprecated in v1.34+, unavailable in v1.37+"
