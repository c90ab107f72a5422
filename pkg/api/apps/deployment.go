// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// deploymentRow declares deployments.
func deploymentRow(p podspec.Policy) *resource.Row {
	return resource.Of[appsv1.DeploymentList](resource.Kind[*appsv1.Deployment]{
		Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true,
		ShortNames: []string{"deploy"}, Categories: []string{"all"},

		Default:                  defaultDeployment,
		FillEmpty:                func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32) },
		PrepareCreate:            prepareDeploymentCreate,
		Validate:                 podspec.Validate(p, validateDeployment),
		PrepareUpdate:            prepareDeploymentUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateDeploymentUpdate),
		Warnings:                 warnDeployment,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderDeployments(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Ready", Type: "string", Description: "Number of the pod with ready state"},
			{Name: "Up-to-date", Type: "string", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["updatedReplicas"]},
			{Name: "Available", Type: "string", Description: appsv1.DeploymentStatus{}.SwaggerDoc()["availableReplicas"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: deploymentCells,

		Subresources: []resource.Sub[*appsv1.Deployment]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: deploymentScale()}},
			{Subresource: strategy.View("status", "spec", "metadata.labels"), PrepareUpdate: prepareDeploymentStatus, ValidateUpdate: validateDeploymentStatus},
		},
	})
}
