// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networking declares ingresses, network policies and the addresses of services.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package networking

import "keelson.dev/apiserver/resource"

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
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
