// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// podTemplateRow declares podtemplates.
func podTemplateRow() *resource.Row {
	return resource.Kind[corev1.PodTemplate, corev1.PodTemplateList]{
		Group: "", Version: "v1", Resource: "podtemplates", Kind: "PodTemplate", Namespaced: true,

		Default:                  defaultPodTemplate,
		PrepareCreate:            preparePodTemplateCreate,
		PrepareUpdate:            preparePodTemplateUpdate,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
	}.Row()
}
