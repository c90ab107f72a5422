// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// ingressRow declares ingresses.
func ingressRow() *resource.Row {
	parts := strategy.Parts[networkingv1.Ingress, networkingv1.IngressSpec, networkingv1.IngressStatus](func(o *networkingv1.Ingress) (*networkingv1.IngressSpec, *networkingv1.IngressStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[networkingv1.Ingress, networkingv1.IngressList]{
		Group: "networking.k8s.io", Version: "v1", Resource: "ingresses", Kind: "Ingress", Namespaced: true,
		ShortNames:    []string{"ing"},
		StoragePrefix: "ingress",

		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[networkingv1.Ingress]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
