// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// resourceQuotaRow declares resourcequotas.
func resourceQuotaRow() *resource.Row {
	parts := strategy.Parts[corev1.ResourceQuota, corev1.ResourceQuotaSpec, corev1.ResourceQuotaStatus](func(o *corev1.ResourceQuota) (*corev1.ResourceQuotaSpec, *corev1.ResourceQuotaStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.ResourceQuotaList](resource.Kind[*corev1.ResourceQuota]{
		Group: "", Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true,
		ShortNames: []string{"quota"},

		Default:                  defaultResourceQuota,
		PrepareCreate:            parts.ClearStatus,
		Validate:                 validateResourceQuota,
		PrepareUpdate:            parts.KeepStatus,
		ValidateUpdate:           validateResourceQuotaUpdate,
		Warnings:                 warnResourceQuota,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Request", Type: "string", Description: "Request represents a minimum amount of cpu/memory that a container may consume."},
			{Name: "Limit", Type: "string", Description: "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."},
			column.Age(),
		},
		Cells: resourceQuotaCells,

		Subresources: []resource.Sub[*corev1.ResourceQuota]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateResourceQuotaStatus},
		},
	})
}
