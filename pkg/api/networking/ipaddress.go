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
	return resource.Of[networkingv1.IPAddressList](resource.Kind[*networkingv1.IPAddress]{
		Group: "networking.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, ipAddressVersions()...), Resource: "ipaddresses", Kind: "IPAddress",
		ShortNames: []string{"ip"},

		ValidateName:             nameIPAddress,
		AllowUnconditionalUpdate: true,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		Validate:                 validateIPAddress,
		ValidateUpdate:           validateIPAddressUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "ParentRef", Type: "string", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]},
		},
		Cells: ipAddressCells,
	})
}
