// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
)

func validateStorageClass(_ context.Context, c *storagev1.StorageClass) field.ErrorList {
	var r report.Report
	provisioner(&r, field.NewPath("provisioner"), c.Provisioner)
	parameters(&r, field.NewPath("parameters"), c.Parameters)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		report.OneOf(&r, field.NewPath("reclaimPolicy"), *p, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	if c.VolumeBindingMode == nil {
		r.Required(field.NewPath("volumeBindingMode"), "")
	} else {
		report.OneOf(&r, field.NewPath("volumeBindingMode"), *c.VolumeBindingMode, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
	}
	topologies(&r, field.NewPath("allowedTopologies"), c.AllowedTopologies)
	return r.Errors
}

func validateStorageClassUpdate(ctx context.Context, c, old *storagev1.StorageClass) field.ErrorList {
	r := report.Report{Errors: append(validateStorageClass(ctx, c), resource.MetaHere())}
	r.Immutable(field.NewPath("parameters"), c.Parameters, old.Parameters)
	r.Immutable(field.NewPath("provisioner"), c.Provisioner, old.Provisioner)
	r.Immutable(field.NewPath("reclaimPolicy"), c.ReclaimPolicy, old.ReclaimPolicy)
	r.Immutable(field.NewPath("volumeBindingMode"), c.VolumeBindingMode, old.VolumeBindingMode)
	return r.Errors
}

func validateVolumeAttributesClass(_ context.Context, c *storagev1.VolumeAttributesClass) field.ErrorList {
	var r report.Report
	provisioner(&r, field.NewPath("driverName"), c.DriverName)
	parameters(&r, field.NewPath("parameters"), c.Parameters)
	if len(c.Parameters) == 0 {
		r.Required(field.NewPath("parameters"), "must contain at least one key/value pair")
	}
	return r.Errors
}

func validateVolumeAttributesClassUpdate(ctx context.Context, c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var r report.Report
	if c.DriverName != old.DriverName {
		r.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden.")
	}
	if !equality.Semantic.DeepEqual(c.Parameters, old.Parameters) {
		r.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden.")
	}
	r.Add(resource.MetaHere())
	r.Add(validateVolumeAttributesClass(ctx, c)...)
	return r.Errors
}

func validateCSIStorageCapacity(_ context.Context, c *storagev1.CSIStorageCapacity) field.ErrorList {
	var r report.Report
	if c.NodeTopology != nil {
		r.Selector(field.NewPath("nodeTopology"), c.NodeTopology)
	}
	r.Subdomain(field.NewPath("storageClassName"), c.StorageClassName)
	if c.Capacity != nil {
		r.Quantity(field.NewPath("capacity"), *c.Capacity)
	}
	return r.Errors
}

func validateCSIStorageCapacityUpdate(ctx context.Context, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	r := report.Report{Errors: append(validateCSIStorageCapacity(ctx, c), resource.MetaHere())}
	r.Immutable(field.NewPath("nodeTopology"), c.NodeTopology, old.NodeTopology)
	r.Immutable(field.NewPath("storageClassName"), c.StorageClassName, old.StorageClassName)
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

// topologies reports bad keys and values, and terms that are there twice: their
// values are sets.
func topologies(r *report.Report, path *field.Path, terms []corev1.TopologySelectorTerm) {
	// In Kubernetes, an empty term repeats one for each term there is.
	seen := make([]map[string]sets.Set[string], len(terms))
	for i, term := range terms {
		at, exprs := path.Index(i).Child("matchLabelExpressions"), map[string]sets.Set[string]{}
		if len(term.MatchLabelExpressions) == 0 {
			exprs = nil
		}
		for j, expr := range term.MatchLabelExpressions {
			values := topologyExpression(r, at.Index(j), expr)
			if _, ok := exprs[expr.Key]; ok {
				r.Duplicate(at.Index(j).Child("key"), expr.Key)
			}
			exprs[expr.Key] = values
		}
		for _, other := range seen {
			if reflect.DeepEqual(exprs, other) {
				r.Duplicate(at, "")
			}
		}
		seen = append(seen, exprs)
	}
}

func topologyExpression(r *report.Report, path *field.Path, expr corev1.TopologySelectorLabelRequirement) sets.Set[string] {
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
