// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/equal"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
)

// podTemplateRow returns the row of the kind table for the resource podtemplates.
func podTemplateRow(p podspec.Policy) *resource.Row {
	return resource.Of[corev1.PodTemplateList](resource.Kind[*corev1.PodTemplate]{
		Group: "", Version: "v1", Resource: "podtemplates", Kind: "PodTemplate", Namespaced: true,
		Gated: podspec.Gated[*corev1.PodTemplate](),

		Default:                  defaultPodTemplate,
		PrepareCreate:            preparePodTemplateCreate,
		Validate:                 podspec.Validate(p, validatePodTemplate),
		PrepareUpdate:            preparePodTemplateUpdate,
		ValidateUpdate:           podspec.ValidateUpdate(p, validatePodTemplateUpdate),
		Warnings:                 warnPodTemplate,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Containers", Type: "string", Description: "Names of each container in the template."},
			{Name: "Images", Type: "string", Description: "Images referenced by each container in the template."},
			{Name: "Pod Labels", Type: "string", Description: "The labels for the pod template."},
		},
		Cells: podTemplateCells,
	})
}

func defaultPodTemplate(t *corev1.PodTemplate) { podspec.DefaultSpec(&t.Template.Spec) }

func preparePodTemplateCreate(ctx context.Context, t *corev1.PodTemplate) {
	strategy.StartGeneration(ctx, t)
	podspec.DropInitAnnotations(&t.Template.ObjectMeta)
}

func preparePodTemplateUpdate(_ context.Context, t, old *corev1.PodTemplate) {
	podspec.DropInitAnnotations(&t.Template.ObjectMeta)
	strategy.Count(t, old, equal.Values(t.Template, old.Template))
}

func validatePodTemplate(ctx context.Context, t *corev1.PodTemplate) field.ErrorList {
	return podspec.ValidateTemplate(ctx, &t.Template, field.NewPath("template"))
}

func validatePodTemplateUpdate(ctx context.Context, t, old *corev1.PodTemplate) field.ErrorList {
	return validatePodTemplate(podspec.Replacing(ctx, &old.Template), t)
}

func warnPodTemplate(_ context.Context, t, old *corev1.PodTemplate) []string {
	if old != nil && t.Generation == old.Generation {
		return nil
	}
	return podspec.WarnOfTemplate("", field.NewPath("template"), &t.Template)
}

func podTemplateCells(t *corev1.PodTemplate, _ resource.CellEnv) []any {
	names, images := column.Containers(t.Template.Spec.Containers)
	return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
}
