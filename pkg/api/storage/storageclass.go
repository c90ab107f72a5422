// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/unset"
)

// storageClassRow returns the row of the kind table for the resource storageclasses.
func storageClassRow() *resource.Row {
	return resource.Of[storagev1.StorageClassList](resource.Kind[*storagev1.StorageClass]{
		Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses", Kind: "StorageClass",
		ShortNames: []string{"sc"},

		Default:                  defaultStorageClass,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateStorageClass,
		ValidateUpdate:           validateStorageClassUpdate,
		Warnings:                 warnStorageClass,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Provisioner", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["provisioner"]},
			{Name: "ReclaimPolicy", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["reclaimPolicy"]},
			{Name: "VolumeBindingMode", Type: "string", Description: storagev1.StorageClass{}.SwaggerDoc()["volumeBindingMode"]},
			{Name: "AllowVolumeExpansion", Type: "string",
				Description: storagev1.StorageClass{}.SwaggerDoc()["allowVolumeExpansion"]},
			column.Age(),
		},
		Cells:     func(c *storagev1.StorageClass, env resource.CellEnv) []any { return storageClassCells(c, c.Name, env) },
		ListCells: storageClassListCells,
	})
}

func defaultStorageClass(c *storagev1.StorageClass) {
	unset.Point(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	unset.Point(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
)

func validateStorageClass(_ context.Context, c *storagev1.StorageClass) field.ErrorList {
	var r report.Report
	provisioner(&r, field.NewPath("provisioner"), c.Provisioner)
	parameters(&r, field.NewPath("parameters"), c.Parameters)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		report.OneOf(&r, field.NewPath("reclaimPolicy"), *p, corev1.PersistentVolumeReclaimDelete,
			corev1.PersistentVolumeReclaimRetain)
	}
	if c.VolumeBindingMode == nil {
		r.Required(field.NewPath("volumeBindingMode"), "")
	} else {
		report.OneOf(&r, field.NewPath("volumeBindingMode"), *c.VolumeBindingMode,
			storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
	}
	topologies(&r, field.NewPath("allowedTopologies"), c.AllowedTopologies)
	return r.Errors
}

func validateStorageClassUpdate(ctx context.Context, c, old *storagev1.StorageClass) field.ErrorList {
	r := report.Report{Errors: validateStorageClass(ctx, c)}
	r.Immutable(field.NewPath("parameters"), c.Parameters, old.Parameters)
	r.Immutable(field.NewPath("provisioner"), c.Provisioner, old.Provisioner)
	r.Immutable(field.NewPath("reclaimPolicy"), c.ReclaimPolicy, old.ReclaimPolicy)
	r.Immutable(field.NewPath("volumeBindingMode"), c.VolumeBindingMode, old.VolumeBindingMode)
	return r.Errors
}

func provisioner(r *report.Report, path *field.Path, name string) {
	if name == "" {
		r.Required(path, "")
		return
	}
	r.QualifiedName(path, strings.ToLower(name))
}

func parameters(r *report.Report, path *field.Path, params map[string]string) {
	if len(params) > maxParameters {
		r.TooLong(path, maxParameters)
		return
	}
	size := 0
	for key, value := range params {
		size += len(key) + len(value)
	}
	if _, ok := params[""]; ok {
		r.Invalid(path, "", "field can not be empty.")
	}
	if size > maxParametersSize {
		r.TooLong(path, maxParametersSize)
	}
}

// topologies reports terms with invalid keys or values, and terms that are equal to an earlier one
// apart from the order of values. As in Kubernetes, a term without expressions is reported as a
// duplicate.
func topologies(r *report.Report, path *field.Path, terms []corev1.TopologySelectorTerm) {
	var seen []map[string]sets.Set[string]
	for i, term := range terms {
		at, exprs := path.Index(i).Child("matchLabelExpressions"), map[string]sets.Set[string]{}
		for j, expr := range term.MatchLabelExpressions {
			values := topologyExpression(r, at.Index(j), expr)
			if _, ok := exprs[expr.Key]; ok {
				r.Duplicate(at.Index(j).Child("key"), expr.Key)
			}
			exprs[expr.Key] = values
		}
		repeats := func(other map[string]sets.Set[string]) bool { return reflect.DeepEqual(exprs, other) }
		if len(exprs) == 0 || slices.ContainsFunc(seen, repeats) {
			r.Duplicate(at, "")
		}
		seen = append(seen, exprs)
	}
}

func topologyExpression(r *report.Report, path *field.Path,
	expr corev1.TopologySelectorLabelRequirement) sets.Set[string] {
	values := sets.New[string]()
	if len(expr.Values) == 0 {
		r.Required(path.Child("values"), "")
	}
	for i, value := range expr.Values {
		if values.Has(value) {
			r.Duplicate(path.Child("values").Index(i), value)
		}
		values.Insert(value)
	}
	r.LabelName(path.Child("key"), expr.Key)
	return values
}

func warnStorageClass(_ context.Context, sc, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range sc.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if message, old := podspec.OldNodeLabel(e.Key); old {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				warnings = append(warnings, at.String()+": "+message)
			}
		}
	}
	return warnings
}

const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

// storageClassListCells returns the cells of classes in a list. The newest default class is marked, because
// claims without a class get this one.
func storageClassListCells(list []*storagev1.StorageClass) func(*storagev1.StorageClass, resource.CellEnv) []any {
	isDefault := func(c *storagev1.StorageClass) bool {
		return c.Annotations[defaultClassAnnotation] == "true" || c.Annotations[betaDefaultClassAnnotation] == "true"
	}
	var newest *storagev1.StorageClass
	for _, c := range list {
		if isDefault(c) && (newest == nil || newer(c, newest)) {
			newest = c
		}
	}
	return func(c *storagev1.StorageClass, env resource.CellEnv) []any {
		name := c.Name
		if newest != nil && name == newest.Name {
			name += " (default)"
		}
		return storageClassCells(c, name, env)
	}
}

// newer reports whether a was created after b. If both were created in the same second, it is the one whose
// name comes first.
func newer(a, b *storagev1.StorageClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.After(b.CreationTimestamp.Time)
}

func storageClassCells(c *storagev1.StorageClass, name string, env resource.CellEnv) []any {
	return []any{
		name, c.Provisioner, column.Deref(c.ReclaimPolicy, "Delete"), column.Deref(c.VolumeBindingMode, "Immediate"),
		c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion, env.Age(c.CreationTimestamp),
	}
}
