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

// namespaceRow declares namespaces.
func namespaceRow() *resource.Row {
	parts := strategy.Parts[corev1.Namespace, corev1.NamespaceSpec, corev1.NamespaceStatus](func(o *corev1.Namespace) (*corev1.NamespaceSpec, *corev1.NamespaceStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.NamespaceList](resource.Kind[*corev1.Namespace]{
		Group: "", Version: "v1", Resource: "namespaces", Kind: "Namespace", NamespaceItself: true,
		ShortNames: []string{"ns"},
		Verbs:      []string{"create", "delete", "get", "list", "patch", "update", "watch"},

		Default:                  defaultNamespace,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1, CreateChecksFirst: true},
		PrepareCreate:            prepareNamespaceCreate,
		Validate:                 validateNamespace,
		PrepareUpdate:            prepareNamespaceUpdate,
		Canonicalize:             canonicalizeNamespace,
		Hooks:                    namespaceHooks(),
		ValidateName:             nameNamespace,
		Fields:                   namespaceFields,
		FieldPaths:               []string{"status.phase"},
		SelectableFields:         []string{"status.phase"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "The status of the namespace"},
			column.Age(),
		},
		Cells: namespaceCells,

		Subresources: []resource.Sub[*corev1.Namespace]{
			{Subresource: resource.Subresource{Name: "finalize", Verbs: []string{"update"}, View: true, ResetFields: []string{"status"}}.WithoutTable(), PrepareUpdate: parts.KeepStatus, ValidateUpdate: validateNamespaceFinalize},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateNamespaceStatus},
		},
	})
}
