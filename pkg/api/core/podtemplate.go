// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
)

// podTemplateRow declares podtemplates.
func podTemplateRow(p podspec.Policy) *resource.Row {
	return resource.Of[corev1.PodTemplateList](resource.Kind[*corev1.PodTemplate]{
		Group: "", Version: "v1", Resource: "podtemplates", Kind: "PodTemplate", Namespaced: true,

		Default:                  defaultPodTemplate,
		PrepareCreate:            preparePodTemplateCreate,
		Validate:                 podspec.Validate(p, validatePodTemplate),
		PrepareUpdate:            preparePodTemplateUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validatePodTemplateUpdate),
		Warnings:                 warnPodTemplate,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template."},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template."},
			{Name: "Pod Labels", Type: "string", Description: "The labels for the pod template."},
		},
		Cells: podTemplateCells,
	})
}
