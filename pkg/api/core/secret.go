// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// secretRow declares secrets.
func secretRow() *resource.Row {
	return resource.Of[corev1.SecretList](resource.Kind[*corev1.Secret]{
		Group: "", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true,

		Default:                  defaultSecret,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		Validate:                 validateSecret,
		PrepareUpdate:            prepareSecretUpdate,
		ValidateUpdate:           validateSecretUpdate,
		Warnings:                 warnSecret,
		Fields:                   secretFields,
		FieldPaths:               []string{"type"},
		SelectableFields:         []string{"type"},
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Type", Type: "string", Description: corev1.Secret{}.SwaggerDoc()["type"]},
			{Name: "Data", Type: "string", Description: corev1.Secret{}.SwaggerDoc()["data"]},
			column.Age(),
		},
		Cells: secretCells,
	})
}
