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

// networkPolicyRow declares networkpolicies.
func networkPolicyRow() *resource.Row {
	return resource.Of[networkingv1.NetworkPolicyList](resource.Kind[*networkingv1.NetworkPolicy]{
		Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy", Namespaced: true,
		ShortNames: []string{"netpol"},

		Default:                  defaultNetworkPolicy,
		PrepareCreate:            strategy.StartGeneration[networkingv1.NetworkPolicy],
		PrepareUpdate:            strategy.CountSpec(func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec }),
		AllowUnconditionalUpdate: true,
		Validate:                 validateNetworkPolicy,
		ValidateUpdate:           validateNetworkPolicyUpdate,
		Warnings:                 warnNetworkPolicy,

		StoredForms: olderNetworkPolicies(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Pod-Selector", Type: "string", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]},
			column.Age(),
		},
		Cells: networkPolicyCells,
	})
}
