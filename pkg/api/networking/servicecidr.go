// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// serviceCIDRRow declares servicecidrs.
func serviceCIDRRow() *resource.Row {
	parts := strategy.Parts[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRSpec, networkingv1.ServiceCIDRStatus](func(o *networkingv1.ServiceCIDR) (*networkingv1.ServiceCIDRSpec, *networkingv1.ServiceCIDRStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[networkingv1.ServiceCIDRList](resource.Kind[*networkingv1.ServiceCIDR]{
		Group: "networking.k8s.io", Version: "v1", Versions: append([]resource.Version{{Name: "v1"}}, serviceCIDRVersions()...), Resource: "servicecidrs", Kind: "ServiceCIDR",

		PrepareCreate:            parts.ClearStatus,
		PrepareUpdate:            parts.KeepStatus,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		Validate:                 validateServiceCIDR,
		ValidateUpdate:           validateServiceCIDRUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "CIDRs", Type: "string", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]},
			column.Age(),
		},
		Cells: serviceCIDRCells,

		Subresources: []resource.Sub[*networkingv1.ServiceCIDR]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndMeta},
		},
	})
}
