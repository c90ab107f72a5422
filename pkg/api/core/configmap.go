// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// configMapRow declares configmaps.
func configMapRow() *resource.Row {
	return resource.Kind[corev1.ConfigMap, corev1.ConfigMapList]{
		Group: "", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true,
		ShortNames: []string{"cm"},

		Default:                  defaultConfigMap,
		AllowUnconditionalUpdate: true,
	}.Row()
}
