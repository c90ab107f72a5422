// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// configMapRow declares configmaps.
func configMapRow() *resource.Row {
	return resource.Of[corev1.ConfigMapList](resource.Kind[*corev1.ConfigMap]{
		Group: "", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true,
		ShortNames: []string{"cm"},

		Default:                  defaultConfigMap,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		Validate:                 validateConfigMap,
		ValidateUpdate:           validateConfigMapUpdate,
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Data", Type: "string", Description: corev1.ConfigMap{}.SwaggerDoc()["data"]},
			column.Age(),
		},
		Cells: configMapCells,
	})
}
