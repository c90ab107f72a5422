// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func warnEndpointSlice(_ context.Context, s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, field.NewPath("spec", "addressType").String()+": FQDN endpoints are deprecated")
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return warnings // write addresses as they should be
	}
	for i := range s.Endpoints {
		for j, address := range s.Endpoints[i].Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), address)...)
		}
	}
	return warnings
}
