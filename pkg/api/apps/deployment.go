// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// deploymentRow declares deployments.
func deploymentRow() *resource.Row {
	return resource.Kind[appsv1.Deployment, appsv1.DeploymentList]{
		Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true,
		ShortNames: []string{"deploy"}, Categories: []string{"all"},

		Default:                  defaultDeployment,
		PrepareCreate:            prepareDeploymentCreate,
		PrepareUpdate:            prepareDeploymentUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[appsv1.Deployment]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: deploymentScale()}},
			{Subresource: strategy.View("status", "spec", "metadata.labels"), PrepareUpdate: prepareDeploymentStatus},
		},
	}.Row()
}
