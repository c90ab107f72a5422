// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// replicaSetRow returns the row of the kind table for the resource replicasets.
func replicaSetRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[appsv1.ReplicaSet, appsv1.ReplicaSetSpec,
		appsv1.ReplicaSetStatus](func(o *appsv1.ReplicaSet) (*appsv1.ReplicaSetSpec, *appsv1.ReplicaSetStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[appsv1.ReplicaSetList](resource.Kind[*appsv1.ReplicaSet]{
		Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Namespaced: true,
		ShortNames: []string{"rs"}, Categories: []string{"all"},
		Gated: podspec.Gated[*appsv1.ReplicaSet](),

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
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"],
				Priority: column.Wide},
		},
		Cells: replicaSetCells,

		Subresources: []resource.Sub[*appsv1.ReplicaSet]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"},
				Kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, Scale: replicaSetScale()}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateReplicaSetStatus},
		},
	})
}

func defaultReplicaSet(rs *appsv1.ReplicaSet) {
	podspec.DefaultSpec(&rs.Spec.Template.Spec)
	unset.Point(&rs.Spec.Replicas, 1)
}

func prepareReplicaSetCreate(_ context.Context, rs *appsv1.ReplicaSet) {
	rs.Status = appsv1.ReplicaSetStatus{}
	rs.Generation = 1
	podspec.DropInitAnnotations(&rs.Spec.Template.ObjectMeta)
}

func prepareReplicaSetUpdate(_ context.Context, rs, old *appsv1.ReplicaSet) {
	rs.Status = old.Status
	podspec.DropInitAnnotations(&rs.Spec.Template.ObjectMeta)
	strategy.Count(rs, old, equal.Values(rs.Spec, old.Spec))
}

func validateReplicaSet(ctx context.Context, rs *appsv1.ReplicaSet) field.ErrorList {
	var r report.Report
	spec, path := &rs.Spec, field.NewPath("spec")
	notNegative(&r, path.Child("replicas"), spec.Replicas)
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	selector := checkSelector(&r, spec.Selector, "deployment", path.Child("selector"))
	checkTemplate(ctx, &r, &spec.Template, selector, "ReplicaSet", path.Child("template"))
	return r.Errors
}

func validateReplicaSetUpdate(ctx context.Context, rs, old *appsv1.ReplicaSet) field.ErrorList {
	r := report.Report{Errors: validateReplicaSet(podspec.Replacing(ctx, &old.Spec.Template), rs)}
	r.Immutable(field.NewPath("spec", "selector"), rs.Spec.Selector, old.Spec.Selector)
	return r.Errors
}

func validateReplicaSetStatus(_ context.Context, rs, _ *appsv1.ReplicaSet) field.ErrorList {
	var r report.Report
	s, path := &rs.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "fullyLabeledReplicas", N: s.FullyLabeledReplicas}, {Name: "readyReplicas", N: s.ReadyReplicas},
		{Name: "availableReplicas", N: s.AvailableReplicas},
	}
	r.NotNegative(path.Child("replicas"), int64(s.Replicas))
	r.Counts(path, counts...)
	r.NotNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	notNegative(&r, path.Child("terminatingReplicas"), s.TerminatingReplicas)
	r.Replicas(path, s.Replicas, counts...)
	return r.Errors
}

func warnReplicaSet(_ context.Context, rs, old *appsv1.ReplicaSet) []string {
	return warnTemplate(rs.Name, &rs.Spec.Template, old == nil, old != nil && rs.Generation != old.Generation)
}

func replicaSetCells(rs *appsv1.ReplicaSet, env resource.CellEnv) []any {
	names, images := column.Containers(rs.Spec.Template.Spec.Containers)
	return []any{
		rs.Name, wanted(rs.Spec.Replicas), int64(rs.Status.Replicas), int64(rs.Status.ReadyReplicas),
		env.Age(rs.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(rs.Spec.Selector),
	}
}

func replicaSetScale() *resource.Scale {
	return scale(func(rs *appsv1.ReplicaSet) (**int32, int32, *metav1.LabelSelector) {
		return &rs.Spec.Replicas, rs.Status.Replicas, rs.Spec.Selector
	})
}

func olderReplicaSets() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[extensionsv1beta1.ReplicaSet,
		appsv1.ReplicaSet](extensionsv1beta1.SchemeGroupVersion.WithKind("ReplicaSet"), nil)}
}
