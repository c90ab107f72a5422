// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

// endpointsRow declares endpoints.
func endpointsRow() *resource.Row {
	return resource.Of[corev1.EndpointsList](resource.Kind[*corev1.Endpoints]{
		Group: "", Version: "v1", Resource: "endpoints", Kind: "Endpoints", Namespaced: true,
		Versions:      []resource.Version{{Name: "v1", Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"}},
		ShortNames:    []string{"ep"},
		StoragePrefix: "services/endpoints",

		Default:                  defaultEndpoints,
		MetaOnUpdate:             resource.MetaRules{RepeatCreateChecks: 1},
		Validate:                 validateEndpoints,
		ValidateUpdate:           validateEndpointsUpdate,
		Warnings:                 warnEndpoints,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Endpoints", Type: "string", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"]},
			column.Age(),
		},
		Cells: endpointsCells,
	})
}
