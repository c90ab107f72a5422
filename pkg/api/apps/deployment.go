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
	parts := strategy.Parts[appsv1.Deployment, appsv1.DeploymentSpec, appsv1.DeploymentStatus](func(o *appsv1.Deployment) (*appsv1.DeploymentSpec, *appsv1.DeploymentStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[appsv1.Deployment, appsv1.DeploymentList]{
		Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true,
		ShortNames: []string{"deploy"}, Categories: []string{"all"},

		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[appsv1.Deployment]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}}},
			{Subresource: strategy.View("status", "spec", "metadata.labels"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
