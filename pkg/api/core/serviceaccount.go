// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// serviceAccountRow declares serviceaccounts.
func serviceAccountRow(token *resource.Creator) *resource.Row {
	return resource.Of[corev1.ServiceAccountList](resource.Kind[*corev1.ServiceAccount]{
		Group: "", Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true,
		ShortNames: []string{"sa"},

		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		PrepareCreate:            prepareServiceAccountCreate,
		PrepareUpdate:            prepareServiceAccountUpdate,
		Warnings:                 warnServiceAccount,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			column.Age(),
		},
		Cells: serviceAccountCells,

		Subresources: []resource.Sub[*corev1.ServiceAccount]{
			{Subresource: resource.Subresource{Name: "token", Verbs: []string{"create"}, Kind: schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}, Create: token}},
		},
	})
}
