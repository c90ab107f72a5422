// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// podTemplateRow declares podtemplates.
func podTemplateRow() *resource.Row {
	return resource.Kind[corev1.PodTemplate, corev1.PodTemplateList]{
		Group: "", Version: "v1", Resource: "podtemplates", Kind: "PodTemplate", Namespaced: true,

		PrepareCreate:            strategy.StartGeneration[corev1.PodTemplate],
		PrepareUpdate:            strategy.CountSpec(func(o *corev1.PodTemplate) *corev1.PodTemplateSpec { return &o.Template }),
		AllowUnconditionalUpdate: true,
	}.Row()
}
