// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// replicationControllerRow declares replicationcontrollers.
func replicationControllerRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[corev1.ReplicationController, corev1.ReplicationControllerSpec, corev1.ReplicationControllerStatus](func(o *corev1.ReplicationController) (*corev1.ReplicationControllerSpec, *corev1.ReplicationControllerStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[corev1.ReplicationControllerList](resource.Kind[*corev1.ReplicationController]{
		Group: "", Version: "v1", Resource: "replicationcontrollers", Kind: "ReplicationController", Namespaced: true,
		ShortNames: []string{"rc"}, Categories: []string{"all"},
		StoragePrefix: "controllers",

		Default:                  defaultReplicationController,
		PrepareCreate:            prepareReplicationControllerCreate,
		ValidateName:             report.LongName,
		Validate:                 podspec.Validate(p, validateReplicationController),
		PrepareUpdate:            prepareReplicationControllerUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validateReplicationControllerUpdate),
		Warnings:                 warnReplicationController,
		Fields:                   replicationControllerFields,
		FieldPaths:               []string{"status.replicas"},
		SelectableFields:         []string{"status.replicas"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		DefaultGarbageCollection: metav1.DeletePropagationOrphan,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Desired", Type: "integer", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"]},
			{Name: "Current", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"]},
			{Name: "Ready", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"]},
			column.Age(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template.", Priority: column.Wide},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: replicationControllerCells,

		Subresources: []resource.Sub[*corev1.ReplicationController]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"}, Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: replicationControllerScale()}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: func(ctx context.Context, rc, old *corev1.ReplicationController) {
				parts.KeepSpec(ctx, rc, old)
				if t := rc.Spec.Template; len(rc.Labels) == 0 && t != nil {
					rc.Labels = maps.Clone(t.Labels) // the default, which a status without a spec came without
				}
			}, ValidateUpdate: validateReplicationControllerStatus},
		},
	})
}
