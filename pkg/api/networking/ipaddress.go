// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// ipAddressRow declares ipaddresses.
func ipAddressRow() *resource.Row {
	return resource.Kind[networkingv1.IPAddress, networkingv1.IPAddressList]{
		Group: "networking.k8s.io", Version: "v1", MoreVersions: ipAddressVersions(), Resource: "ipaddresses", Kind: "IPAddress",
		ShortNames: []string{"ip"},

		ValidateName:             nameIPAddress,
		AllowUnconditionalUpdate: true,
		MetaOnUpdate:             resource.MetaRules{Whole: 1, WholeFirst: true},
		Validate:                 validateIPAddress,
		ValidateUpdate:           validateIPAddressUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "ParentRef", Type: "string", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]},
		},
		Cells: ipAddressCells,
	}.Row()
}
