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

// statefulSetRow declares statefulsets.
func statefulSetRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[appsv1.StatefulSet, appsv1.StatefulSetSpec, appsv1.StatefulSetStatus](func(o *appsv1.StatefulSet) (*appsv1.StatefulSetSpec, *appsv1.StatefulSetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[appsv1.StatefulSetList](resource.Kind[*appsv1.StatefulSet]{
		Group: "apps", Version: "v1", Resource: "statefulsets", Kind: "StatefulSet", Namespaced: true,
		ShortNames: []string{"sts"}, Categories: []string{"all"},

		Default:                  defaultStatefulSet,
		FillEmpty:                func(o *appsv1.StatefulSet) { o.Spec.Replicas = new(int32) },
		PrepareCreate:            prepareStatefulSetCreate,
		Validate:                 podspec.Validate(p, validateStatefulSet),
		PrepareUpdate:            prepareStatefulSetUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateStatefulSetUpdate),
		Warnings:                 warnStatefulSet,
		ValidateName:             nameStatefulSet,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Ready", Type: "string", Description: "Number of the pod with ready state"},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
		},
		Cells: statefulSetCells,

		Subresources: []resource.Sub[*appsv1.StatefulSet]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: statefulSetScale()}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec, ValidateUpdate: validateStatefulSetStatus},
		},
	})
}
