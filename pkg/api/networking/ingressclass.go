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

// ingressClassRow declares ingressclasses.
func ingressClassRow() *resource.Row {
	return resource.Of[networkingv1.IngressClassList](resource.Kind[*networkingv1.IngressClass]{
		Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses", Kind: "IngressClass",

		Default:                  defaultIngressClass,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		PrepareCreate:            strategy.StartGeneration[networkingv1.IngressClass],
		PrepareUpdate:            strategy.CountSpec(func(o *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &o.Spec }),
		AllowUnconditionalUpdate: true,
		Validate:                 validateIngressClass,
		ValidateUpdate:           validateIngressClassUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Controller", Type: "string", Description: "Controller that is responsible for handling this class"},
			{Name: "Parameters", Type: "string", Description: "A reference to a resource with additional parameters"},
			column.Age(),
		},
		Cells: ingressClassCells,
	})
}
