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

// replicaSetRow declares replicasets.
func replicaSetRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[appsv1.ReplicaSet, appsv1.ReplicaSetSpec, appsv1.ReplicaSetStatus](func(o *appsv1.ReplicaSet) (*appsv1.ReplicaSetSpec, *appsv1.ReplicaSetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[appsv1.ReplicaSetList](resource.Kind[*appsv1.ReplicaSet]{
		Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Namespaced: true,
		ShortNames: []string{"rs"}, Categories: []string{"all"},

		Default:                  defaultReplicaSet,
		FillEmpty:                func(o *appsv1.ReplicaSet) { o.Spec.Replicas = new(int32) },
		PrepareCreate:            prepareReplicaSetCreate,
		Validate:                 podspec.Validate(p, validateReplicaSet),
		PrepareUpdate:            prepareReplicaSetUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateReplicaSetUpdate),
		Warnings:                 warnReplicaSet,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		StoredForms: olderReplicaSets(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Desired", Type: "integer", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"]},
			{Name: "Current", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"]},
			{Name: "Ready", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: replicaSetCells,

		Subresources: []resource.Sub[*appsv1.ReplicaSet]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: replicaSetScale()}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateReplicaSetStatus},
		},
	})
}
