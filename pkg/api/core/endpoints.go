// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// endpointsRow declares endpoints.
func endpointsRow() *resource.Row {
	return resource.Kind[corev1.Endpoints, corev1.EndpointsList]{
		Group: "", Version: "v1", Resource: "endpoints", Kind: "Endpoints", Namespaced: true,
		ShortNames:    []string{"ep"},
		StoragePrefix: "services/endpoints",

		Default:                  defaultEndpoints,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
	}.Row()
}
