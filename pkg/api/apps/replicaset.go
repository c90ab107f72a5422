// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// replicaSetRow declares replicasets.
func replicaSetRow() *resource.Row {
	parts := strategy.Parts[appsv1.ReplicaSet, appsv1.ReplicaSetSpec, appsv1.ReplicaSetStatus](func(o *appsv1.ReplicaSet) (*appsv1.ReplicaSetSpec, *appsv1.ReplicaSetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[appsv1.ReplicaSet, appsv1.ReplicaSetList]{
		Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Namespaced: true,
		ShortNames: []string{"rs"}, Categories: []string{"all"},

		Default:                  defaultReplicaSet,
		PrepareCreate:            prepareReplicaSetCreate,
		PrepareUpdate:            prepareReplicaSetUpdate,
		Fields:                   replicaSetFields,
		SelectableFields:         []string{"status.replicas"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Subresources: []resource.Sub[appsv1.ReplicaSet]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: replicaSetScale()}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
