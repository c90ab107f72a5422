// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// daemonSetRow declares daemonsets.
func daemonSetRow(p podspec.Policy) *resource.Row {
	return resource.Of[appsv1.DaemonSetList](resource.Kind[*appsv1.DaemonSet]{
		Group: "apps", Version: "v1", Resource: "daemonsets", Kind: "DaemonSet", Namespaced: true,
		ShortNames: []string{"ds"}, Categories: []string{"all"},

		Default:                  defaultDaemonSet,
		Readable:                 readTemplateGeneration,
		FillEmpty:                func(d *appsv1.DaemonSet) { setTemplateGeneration(d, 0) },
		PrepareCreate:            prepareDaemonSetCreate,
		Validate:                 podspec.Validate(p, validateDaemonSet),
		PrepareUpdate:            prepareDaemonSetUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateDaemonSetUpdate),
		Warnings:                 warnDaemonSet,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderDaemonSets(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Desired", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["desiredNumberScheduled"]},
			{Name: "Current", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["currentNumberScheduled"]},
			{Name: "Ready", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberReady"]},
			{Name: "Up-to-date", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["updatedNumberScheduled"]},
			{Name: "Available", Type: "integer", Description: appsv1.DaemonSetStatus{}.SwaggerDoc()["numberAvailable"]},
			{Name: "Node Selector", Type: "string", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		HiddenAnnotations: []string{appsv1.DeprecatedTemplateGeneration},
		Cells:             daemonSetCells,

		Subresources: []resource.Sub[*appsv1.DaemonSet]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareDaemonSetStatus, ValidateUpdate: validateDaemonSetStatus},
		},
	})
}
