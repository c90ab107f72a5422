// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"keelson.dev/apiserver/resource"
)

// ipAddressRow declares ipaddresses.
func ipAddressRow() *resource.Row {
	return resource.Kind[networkingv1.IPAddress, networkingv1.IPAddressList]{
		Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses", Kind: "IPAddress",
		ShortNames: []string{"ip"},

		AllowUnconditionalUpdate: true,
	}.Row()
}
