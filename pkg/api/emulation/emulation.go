// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulation changes the rules of rows to those of an earlier release of Kubernetes: it drops
// fields that this release does not have or has disabled, unless a stored object already uses them,
// and rejects values that this release rejects. So a server of the earlier release can take over the
// data of a server that emulates it.
//
// All differences are in this package, so that the rows have only the rules of the present release. The
// package does not decide which versions are served; package api does.
package emulation

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/release"
)

// Apply changes the rules of rows to those of an emulated release.
func Apply(rows []*resource.Row, emulated release.Emulated) {
	if !emulated.Before(37) {
		return
	}
	for _, row := range rows {
		switch obj := row.New().(type) {
		case *appsv1.StatefulSet:
			clearUnused(row, maxUnavailable)
			clearProjections(row)
		case *storagev1.CSIDriver:
			clearUnused(row, preventScheduling)
		case *autoscalingv2.HorizontalPodAutoscaler:
			rejectZero(row)
		default:
			if hasPods(obj) {
				clearProjections(row)
			}
		}
	}
}

// clearOnWrite makes a row call drop with each object that a client writes. old is nil on create.
func clearOnWrite(row *resource.Row, drop func(obj, old resource.Object)) {
	create, update := row.PrepareCreate, row.PrepareUpdate
	row.PrepareCreate = func(ctx context.Context, obj resource.Object) {
		drop(obj, nil)
		if create != nil {
			create(ctx, obj)
		}
	}
	row.PrepareUpdate = func(ctx context.Context, obj, old resource.Object) {
		drop(obj, old)
		if update != nil {
			update(ctx, obj, old)
		}
	}
}

// clearUnused makes a row clear a field unless the stored object has it, and never set its default.
// at returns the address of the field, or nil if the object does not have the field's parent.
func clearUnused[O resource.Object, F any](row *resource.Row, at func(O) **F) {
	fieldOf := func(obj resource.Object) **F {
		if o, ok := obj.(O); ok {
			return at(o)
		}
		return nil
	}
	fill := row.Default
	row.Default = func(obj resource.Object) {
		before := fieldOf(obj)
		unset := before == nil || *before == nil
		fill(obj)
		if f := fieldOf(obj); f != nil && unset {
			*f = nil
		}
	}
	clearOnWrite(row, func(obj, old resource.Object) {
		if old != nil {
			if f := fieldOf(old); f != nil && *f != nil {
				return
			}
		}
		if f := fieldOf(obj); f != nil {
			*f = nil
		}
	})
}

func maxUnavailable(s *appsv1.StatefulSet) **intstr.IntOrString {
	if rolling := s.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		return &rolling.MaxUnavailable
	}
	return nil
}

func preventScheduling(d *storagev1.CSIDriver) **bool { return &d.Spec.PreventPodSchedulingIfMissing }

// rejectZero makes a row reject autoscalers with a minimum of zero replicas. An update accepts the
// value if the stored object has it.
func rejectZero(row *resource.Row) {
	zero := func(obj resource.Object) bool {
		h, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		return ok && h.Spec.MinReplicas != nil && *h.Spec.MinReplicas == 0
	}
	invalid := field.Invalid(field.NewPath("spec", "minReplicas"), int32(0), "must be greater than or equal to 1")
	create, update := row.Validate, row.ValidateUpdate
	row.Validate = func(ctx context.Context, obj resource.Object) field.ErrorList {
		errs := create(ctx, obj)
		if zero(obj) {
			return append(field.ErrorList{invalid}, errs...)
		}
		return errs
	}
	row.ValidateUpdate = func(ctx context.Context, obj, old resource.Object) field.ErrorList {
		errs := update(ctx, obj, old)
		if zero(obj) && !zero(old) {
			return append(field.ErrorList{invalid}, errs...)
		}
		return errs
	}
}
