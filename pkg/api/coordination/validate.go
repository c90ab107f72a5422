// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

func validateLease(_ context.Context, l *coordinationv1.Lease) field.ErrorList {
	var r report.Report
	spec, path := &l.Spec, field.NewPath("spec")
	if n := spec.LeaseDurationSeconds; n != nil && *n <= 0 {
		r.Invalid(path.Child("leaseDurationSeconds"), n, "must be greater than 0")
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		r.Invalid(path.Child("leaseTransitions"), n, "must be greater than or equal to 0")
	}
	if spec.PreferredHolder != nil && *spec.PreferredHolder != "" && (spec.Strategy == nil || *spec.Strategy == "") {
		r.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined")
	}
	return r.Errors
}

func validateLeaseUpdate(ctx context.Context, l, _ *coordinationv1.Lease) field.ErrorList {
	return validateLease(ctx, l)
}
