// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node declares runtime classes.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		runtimeClassRow(),
	}
}

// runtimeClassRow returns the row of the kind table for the resource runtimeclasses.
func runtimeClassRow() *resource.Row {
	return resource.Of[nodev1.RuntimeClassList](resource.Kind[*nodev1.RuntimeClass]{
		Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses", Kind: "RuntimeClass",

		AnyFinalizer:        true,
		MetaOnUpdate:        resource.CheckNameAndFinalizers,
		Validate:            validateRuntimeClass,
		ValidateUpdate:      validateRuntimeClassUpdate,
		Warnings:            warnRuntimeClass,
		AllowCreateOnUpdate: true,

		StoredForms: olderRuntimeClasses(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Handler", Type: "string", Description: ""},
			column.Age(),
		},
		Cells: runtimeClassCells,
	})
}

func validateRuntimeClass(_ context.Context, c *nodev1.RuntimeClass) field.ErrorList {
	var r report.Report
	if c.Handler == "" {
		r.Required(field.NewPath("handler"), "")
	} else {
		r.Each(field.NewPath("handler"), c.Handler, apivalidation.NameIsDNSLabel(c.Handler, false))
	}
	if c.Overhead != nil {
		r.Add(podspec.ValidateResources(&corev1.ResourceRequirements{Limits: c.Overhead.PodFixed}, nil,
			field.NewPath("overhead"))...)
	}
	if s := c.Scheduling; s != nil {
		r.Labels(field.NewPath("scheduling", "nodeSelector"), s.NodeSelector)
		path := field.NewPath("scheduling", "tolerations")
		r.Add(podspec.ValidateTolerations(s.Tolerations, path)...)
		seen := sets.New[corev1.Toleration]()
		for i, t := range s.Tolerations {
			key := corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}
			if seen.Has(key) {
				r.Duplicate(path.Index(i), t)
			}
			seen.Insert(key)
		}
	}
	return r.Errors
}

func validateRuntimeClassUpdate(ctx context.Context, c, old *nodev1.RuntimeClass) field.ErrorList {
	r := report.Report{Errors: validateRuntimeClass(ctx, c)}
	r.Immutable(field.NewPath("handler"), c.Handler, old.Handler)
	return r.Errors
}

func warnRuntimeClass(_ context.Context, rc, _ *nodev1.RuntimeClass) []string {
	if rc.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range report.Keys(rc.Scheduling.NodeSelector) {
		if message, old := podspec.OldNodeLabel(key); old {
			warnings = append(warnings, "scheduling.nodeSelector: "+message)
		}
	}
	return warnings
}

func runtimeClassCells(c *nodev1.RuntimeClass, env resource.CellEnv) []any {
	return []any{c.Name, c.Handler, env.Age(c.CreationTimestamp)}
}

// olderRuntimeClasses returns the form in which servers stored classes of v1alpha1. In this form,
// the fields of a class are below spec.
func olderRuntimeClasses() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(nodev1alpha1.SchemeGroupVersion.WithKind("RuntimeClass"),
			func(in *nodev1alpha1.RuntimeClass, out *nodev1.RuntimeClass) {
				out.Handler = in.Spec.RuntimeHandler
				if o := in.Spec.Overhead; o != nil {
					out.Overhead = &nodev1.Overhead{PodFixed: o.PodFixed}
				}
				if s := in.Spec.Scheduling; s != nil {
					out.Scheduling = &nodev1.Scheduling{NodeSelector: s.NodeSelector,
						Tolerations: append([]corev1.Toleration(nil), s.Tolerations...)}
				}
			}),
	}
}
