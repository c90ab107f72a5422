// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateRuntimeClass(_ context.Context, c *nodev1.RuntimeClass) field.ErrorList {
	var r report.Report
	if c.Handler == "" {
		r.Required(field.NewPath("handler"), "")
	} else {
		r.Each(field.NewPath("handler"), c.Handler, apivalidation.NameIsDNSLabel(c.Handler, false))
	}
	if c.Overhead != nil {
		r.Add(podspec.ValidateResources(&corev1.ResourceRequirements{Limits: c.Overhead.PodFixed}, nil, field.NewPath("overhead"))...)
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
	r := report.Report{Errors: append(validateRuntimeClass(ctx, c), resource.MetaHere())}
	r.Immutable(field.NewPath("handler"), c.Handler, old.Handler)
	return r.Errors
}
