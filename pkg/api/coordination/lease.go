// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordination declares leases.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		leaseRow(),
	}
}

// leaderElection is the feature gate of coordinated leader election.
const leaderElection = "CoordinatedLeaderElection"

// leaseRow returns the row of the kind table for the resource leases.
func leaseRow() *resource.Row {
	return resource.Of[coordinationv1.LeaseList](resource.Kind[*coordinationv1.Lease]{
		Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease", Namespaced: true,
		Gated: []resource.Gated[*coordinationv1.Lease]{
			resource.GatedField(leaderElection,
				func(l *coordinationv1.Lease) **coordinationv1.CoordinatedLeaseStrategy { return &l.Spec.Strategy }),
			resource.GatedField(leaderElection, func(l *coordinationv1.Lease) **string { return &l.Spec.PreferredHolder }),
		},

		AnyFinalizer:        true,
		Validate:            validateLease,
		ValidateUpdate:      validateLeaseUpdate,
		AllowCreateOnUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Holder", Type: "string", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]},
			column.Age(),
		},
		Cells: leaseCells,
	})
}

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

func leaseCells(l *coordinationv1.Lease, env resource.CellEnv) []any {
	return []any{l.Name, column.Deref(l.Spec.HolderIdentity, ""), env.Age(l.CreationTimestamp)}
}
