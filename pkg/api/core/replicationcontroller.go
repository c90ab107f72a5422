// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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

// replicationControllerRow returns the row of the kind table for the resource
// replicationcontrollers.
func replicationControllerRow(p podspec.Policy) *resource.Row {
	parts := strategy.Parts[corev1.ReplicationController, corev1.ReplicationControllerSpec,
		corev1.ReplicationControllerStatus](
		func(o *corev1.ReplicationController) (*corev1.ReplicationControllerSpec, *corev1.ReplicationControllerStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[corev1.ReplicationControllerList](resource.Kind[*corev1.ReplicationController]{
		Group: "", Version: "v1", Resource: "replicationcontrollers", Kind: "ReplicationController", Namespaced: true,
		ShortNames: []string{"rc"}, Categories: []string{"all"},
		StoragePrefix: "controllers",
		Gated:         podspec.Gated[*corev1.ReplicationController](),

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
			{Name: "Images", Type: "string",
				Description: "Images referenced by each container in the template.", Priority: column.Wide},
			{Name: "Selector", Type: "string",
				Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"], Priority: column.Wide},
		},
		Cells: replicationControllerCells,

		Subresources: []resource.Sub[*corev1.ReplicationController]{
			{Subresource: resource.Subresource{Name: "scale", Verbs: []string{"get", "patch", "update"},
				Kind:  schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
				Scale: replicationControllerScale()}},
			{Subresource: strategy.View("status", "spec"),
				PrepareUpdate: func(ctx context.Context, rc, old *corev1.ReplicationController) {
					parts.KeepSpec(ctx, rc, old)
					if t := rc.Spec.Template; len(rc.Labels) == 0 && t != nil {
						// The client may have sent a status without a spec, so the labels could not
						// get their default before the old spec was restored.
						rc.Labels = maps.Clone(t.Labels)
					}
				}, ValidateUpdate: validateReplicationControllerStatus},
		},
	})
}

func replicationControllerScale() *resource.Scale {
	return &resource.Scale{
		Get: func(obj resource.Object) (spec, status int32, selector string, err error) {
			rc := obj.(*corev1.ReplicationController)
			if rc.Spec.Replicas != nil {
				spec = *rc.Spec.Replicas
			}
			return spec, rc.Status.Replicas, labels.Set(rc.Spec.Selector).String(), nil
		},
		Set: func(obj resource.Object, replicas int32) {
			obj.(*corev1.ReplicationController).Spec.Replicas = &replicas
		},
		SpecPath: "spec.replicas",
	}
}

// defaultReplicationController sets the selector and the controller's labels to the labels of the
// template if they are unset, and sets other defaults.
func defaultReplicationController(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 && t.Labels != nil {
			rc.Spec.Selector = t.Labels
		}
		if len(rc.Labels) == 0 && t.Labels != nil {
			rc.Labels = t.Labels
		}
		podspec.DefaultSpec(&t.Spec)
	}
	unset.Point(&rc.Spec.Replicas, 1)
}

func prepareReplicationControllerCreate(_ context.Context, rc *corev1.ReplicationController) {
	rc.Status = corev1.ReplicationControllerStatus{}
	rc.Generation = 1
	if rc.Spec.Template != nil {
		podspec.DropInitAnnotations(&rc.Spec.Template.ObjectMeta)
	}
}

func prepareReplicationControllerUpdate(_ context.Context, rc, old *corev1.ReplicationController) {
	rc.Status = old.Status
	if t := rc.Spec.Template; t != nil {
		podspec.DropInitAnnotations(&t.ObjectMeta)
	}
	strategy.Count(rc, old, equal.Values(rc.Spec, old.Spec))
}

func validateReplicationController(ctx context.Context, rc *corev1.ReplicationController) field.ErrorList {
	var r report.Report
	spec, path := &rc.Spec, field.NewPath("spec")
	r.NotNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))
	if len(spec.Selector) == 0 {
		r.Required(path.Child("selector"), "")
	}
	if spec.Replicas == nil {
		r.Required(path.Child("replicas"), "")
	} else {
		r.NotNegative(path.Child("replicas"), int64(*spec.Replicas))
	}
	template := path.Child("template")
	if spec.Template == nil {
		r.Required(template, "")
		return r.Errors
	}
	if len(spec.Selector) > 0 && !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		r.Invalid(template.Child("metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`")
	}
	r.Add(podspec.ValidateTemplate(ctx, spec.Template, template)...)
	report.OneOf(&r, template.Child("spec", "restartPolicy"), spec.Template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if spec.Template.Spec.ActiveDeadlineSeconds != nil {
		r.Forbidden(template.Child("spec", "activeDeadlineSeconds"),
			"activeDeadlineSeconds in ReplicationController is not Supported")
	}
	return r.Errors
}

func validateReplicationControllerUpdate(ctx context.Context, rc, old *corev1.ReplicationController) field.ErrorList {
	return validateReplicationController(podspec.Replacing(ctx, old.Spec.Template), rc)
}

func validateReplicationControllerStatus(_ context.Context, rc, _ *corev1.ReplicationController) field.ErrorList {
	var r report.Report
	s, path := &rc.Status, field.NewPath("status")
	counts := []report.Count{
		{Name: "fullyLabeledReplicas", N: s.FullyLabeledReplicas}, {Name: "readyReplicas", N: s.ReadyReplicas},
		{Name: "availableReplicas", N: s.AvailableReplicas},
	}
	r.NotNegative(path.Child("replicas"), int64(s.Replicas))
	r.Counts(path, counts...)
	r.NotNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	r.Replicas(path, s.Replicas, counts...)
	return r.Errors
}

func warnReplicationController(_ context.Context, rc, old *corev1.ReplicationController) []string {
	path := field.NewPath("spec", "template")
	switch {
	case old == nil:
		return podspec.WarnOfTemplate(rc.Name, path, rc.Spec.Template)
	case rc.Generation != old.Generation:
		return podspec.WarnOfTemplate("", path, rc.Spec.Template)
	}
	return nil
}

func replicationControllerCells(rc *corev1.ReplicationController, env resource.CellEnv) []any {
	var containers []corev1.Container
	if rc.Spec.Template != nil {
		containers = rc.Spec.Template.Spec.Containers
	}
	names, images := column.Containers(containers)
	desired := int64(0)
	if rc.Spec.Replicas != nil {
		desired = int64(*rc.Spec.Replicas)
	}
	return []any{
		rc.Name, desired, int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), env.Age(rc.CreationTimestamp),
		names, images, labels.FormatLabels(rc.Spec.Selector),
	}
}

func replicationControllerFields(rc *corev1.ReplicationController) fields.Set {
	return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
}
