// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// serviceRow declares services.
func serviceRow(allocator ServiceAllocator, proxy resource.ConnectFunc) *resource.Row {
	parts := strategy.Parts[corev1.Service, corev1.ServiceSpec, corev1.ServiceStatus](func(o *corev1.Service) (*corev1.ServiceSpec, *corev1.ServiceStatus) {
		return &o.Spec, &o.Status
	})
	k := resource.Kind[*corev1.Service]{
		Group: "", Version: "v1", Resource: "services", Kind: "Service", Namespaced: true,
		ShortNames: []string{"svc"}, Categories: []string{"all"},
		StoragePrefix: "services/specs",

		Default:                  defaultService,
		Canonicalize:             canonicalizeService,
		PrepareCreate:            parts.ClearStatus,
		Validate:                 validateService,
		PrepareUpdate:            prepareServiceUpdate,
		ValidateUpdate:           validateServiceUpdate,
		Warnings:                 warnService,
		ValidateName:             nameService,
		Fields:                   serviceFields,
		FieldPaths:               []string{"spec.clusterIP", "spec.type"},
		SelectableFields:         []string{"spec.clusterIP", "spec.type"},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Type", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["type"]},
			{Name: "Cluster-IP", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["clusterIP"]},
			{Name: "External-IP", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["externalIPs"]},
			{Name: "Port(s)", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["ports"]},
			column.Age(),
			{Name: "Selector", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: serviceCells,

		Subresources: []resource.Sub[*corev1.Service]{
			{Subresource: resource.Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ServiceProxyOptions"}, Connect: proxy, Traffic: resource.Proxied}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateServiceStatus, Warnings: warnServiceStatus},
		},
	}
	if allocator != nil {
		k.Hooks, k.Restore = allocator.Hooks(), allocator.Restore
	}
	return resource.Of[corev1.ServiceList](k)
}
