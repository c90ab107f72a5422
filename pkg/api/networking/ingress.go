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

// ingressRow declares ingresses.
func ingressRow() *resource.Row {
	parts := strategy.Parts[networkingv1.Ingress, networkingv1.IngressSpec, networkingv1.IngressStatus](func(o *networkingv1.Ingress) (*networkingv1.IngressSpec, *networkingv1.IngressStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[networkingv1.IngressList](resource.Kind[*networkingv1.Ingress]{
		Group: "networking.k8s.io", Version: "v1", Resource: "ingresses", Kind: "Ingress", Namespaced: true,
		ShortNames:    []string{"ing"},
		StoragePrefix: "ingress",

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		Validate:                 validateIngress,
		ValidateUpdate:           validateIngressUpdate,
		Warnings:                 warnIngress,

		StoredForms: olderIngresses(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Class", Type: "string", Description: "The name of the IngressClass resource that should be used for additional configuration"},
			{Name: "Hosts", Type: "string", Description: "Hosts that incoming requests are matched against before the ingress rule"},
			{Name: "Address", Type: "string", Description: "Address is a list containing ingress points for the load-balancer"},
			{Name: "Ports", Type: "string", Description: "Ports of TLS configurations that open"},
			column.Age(),
		},
		Cells: ingressCells,

		Subresources: []resource.Sub[*networkingv1.Ingress]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateIngressStatus, Warnings: warnIngressStatus},
		},
	})
}
